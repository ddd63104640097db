// Ranks in one process. Bytes travel in random pieces. Pairs of ranks deliver in random order, and
// the bytes of one pair in order, as over streams.
#include "exec/stream_executor.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "base/prng.h"
#include "exec/rank_plan.h"
#include "exec/serial.h"
#include "plan/scheme.h"
#include "sanitized.h"

namespace thalweg::exec {
namespace {

// Bytes between two ranks that were sent and not delivered yet.
struct Wire {
  struct Piece {
    std::uint32_t arrival;
    std::vector<std::byte> bytes;
  };
  std::deque<Piece> pieces;
};

class World {
 public:
  World(const plan::Plan& plan, DType type, ReduceOp op, Memory memory, std::uint64_t seed)
      : ranks_(static_cast<std::size_t>(plan.ranks)),
        memory_(std::move(memory)),
        wires_(ranks_ * ranks_),
        prng_(seed) {
    const std::size_t element = size_of(type);
    for (std::size_t r = 0; r < ranks_; ++r) {
      plans_.emplace_back(plan, Rank(static_cast<std::int32_t>(r)));
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      std::vector<std::byte*> places;
      for (const RankPlan::Buffer& buffer : plans_[r].buffers()) {
        const auto offset = static_cast<std::size_t>(plan.chunks[buffer.chunk.index()].offset);
        places.push_back(memory_[r].data() + offset * element);
      }
      executors_.emplace_back().start(plans_[r], type, op, places);
    }
  }

  // False: no progress is possible, and not all are done.
  bool run() {
    while (true) {
      std::vector<std::pair<std::size_t, std::uint32_t>> sends;
      for (std::size_t r = 0; r < ranks_; ++r) {
        for (std::uint32_t i = 0; i < plans_[r].sends().size(); ++i) {
          if (!executors_[r].ready(i).empty()) sends.emplace_back(r, i);
        }
      }
      std::vector<std::size_t> busy;
      for (std::size_t w = 0; w < wires_.size(); ++w) {
        if (!wires_[w].pieces.empty()) busy.push_back(w);
      }
      if (sends.empty() && busy.empty()) break;
      if (!busy.empty() && (sends.empty() || prng_.below(2) == 0)) {
        deliver(busy[prng_.below(busy.size())]);
      } else {
        const auto [rank, send] = sends[prng_.below(sends.size())];
        transmit(rank, send);
      }
    }
    return std::ranges::all_of(executors_, [](const StreamExecutor& e) { return e.done(); });
  }

  [[nodiscard]] const Memory& memory() const { return memory_; }

 private:
  void transmit(std::size_t rank, std::uint32_t send) {
    const auto ready = executors_[rank].ready(send);
    const std::size_t size = 1 + prng_.below(ready.size());
    const RankPlan::Send& s = plans_[rank].sends()[send];
    wires_[rank * ranks_ + s.target.index()].pieces.push_back(
        {s.arrival, {ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(size)}});
    executors_[rank].sent(send, size);
  }

  void deliver(std::size_t wire) {
    const Wire::Piece piece = std::move(wires_[wire].pieces.front());
    wires_[wire].pieces.pop_front();
    StreamExecutor& target = executors_[wire % ranks_];
    for (std::span<const std::byte> left = piece.bytes; !left.empty();) {
      const auto place = target.place(piece.arrival);
      const std::size_t size = 1 + prng_.below(left.size());
      if (!place.empty() && prng_.below(2) == 0) {
        const std::size_t direct = std::min(size, place.size());
        std::ranges::copy(left.first(direct), place.begin());
        target.placed(piece.arrival, direct);
        left = left.subspan(direct);
      } else {
        target.consume(piece.arrival, left.first(size));
        left = left.subspan(size);
      }
    }
  }

  std::size_t ranks_;
  Memory memory_;
  std::vector<Wire> wires_;
  std::vector<RankPlan> plans_;
  std::vector<StreamExecutor> executors_;
  Prng prng_;
};

TEST(StreamExecutor, run__every_scheme_collective_and_rank_count_does_as_the_plan_in_its_order) {
  struct Numbers {
    DType type;
    ReduceOp op;
  };
  const std::vector<Numbers> numbers = {{DType::kInt8, ReduceOp::kSum},
                                        {DType::kInt16, ReduceOp::kProduct},
                                        {DType::kFloat32, ReduceOp::kSum},
                                        {DType::kInt64, ReduceOp::kMax}};
  std::uint64_t seed = 1;
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    for (const plan::Collective collective : scheme->collectives) {
      if (collective == plan::Collective::kAllToAll || collective == plan::Collective::kMix)
        continue;
      for (int ranks = 1; ranks <= (kUnderSanitizer ? 9 : 17); ++ranks, ++seed) {
        const Numbers& n = numbers[seed % numbers.size()];
        const std::int64_t elements = static_cast<std::int64_t>(1 + seed * 7 % 150);
        SCOPED_TRACE(fmt::format("{} {} ranks={} elements={} {} {} seed={}", scheme->name,
                                 plan::name_of(collective), ranks, elements, name_of(n.type),
                                 name_of(n.op), seed));
        const plan::Plan plan = plan_of(std::string(scheme->name), collective, ranks, elements,
                                        static_cast<int>(size_of(n.type)));
        Prng prng(seed);
        const Memory memory = random_memory(
            ranks, static_cast<std::size_t>(elements) * size_of(n.type), n.type, prng);
        World world(plan, n.type, n.op, memory, seed);
        ASSERT_TRUE(world.run());
        ASSERT_EQ(world.memory(), serial(plan, n.type, n.op, memory));
      }
    }
  }
}

TEST(StreamExecutor, start__again_with_another_plan) {
  const plan::Plan first = plan_of("ring", plan::Collective::kAllreduce, 2, 9, 4);
  const plan::Plan second = plan_of("butterfly", plan::Collective::kAllreduce, 2, 3, 4);
  Prng prng(5);
  StreamExecutor executor;
  for (const plan::Plan* plan : {&first, &second}) {
    const RankPlan rank_plan(*plan, Rank(0));
    std::vector<std::byte> memory(static_cast<std::size_t>(plan->size().count()));
    std::vector<std::byte*> places(rank_plan.buffers().size(), memory.data());
    executor.start(rank_plan, DType::kInt32, ReduceOp::kSum, places);
    EXPECT_FALSE(executor.done());
    std::uint32_t send = 0;
    std::size_t ready = 0;
    while (executor.poll_ready(send)) ready += executor.ready(send).size();
    EXPECT_GT(ready, 0U);
    EXPECT_EQ(executor.outstanding(0), rank_plan.buffers()[rank_plan.arrivals()[0].buffer].bytes);
  }
}

}  // namespace
}  // namespace thalweg::exec
