#include "exec/segment_executor.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "base/prng.h"
#include "exec/serial.h"
#include "plan/scheme.h"
#include "topology/format/load.h"

namespace thalweg::exec {
namespace {

// Two ranks that exchange a tensor of 10 floats by "butterfly": each sends all of its own.
struct Pair {
  topology::Topology topology = *topology::topology_from_shorthand("single-switch:hosts=2");
  plan::Plan plan = *plan::make_plan("butterfly", {.topology = topology, .elements = 10});
  RankPlan rank_plan{plan, Rank(0)};
  std::vector<float> values = std::vector<float>(10, 2.0F);
  std::vector<std::byte*> memory{reinterpret_cast<std::byte*>(values.data())};

  // Elements of a segment on the wire: its count, and four of the tensor.
  static constexpr std::int64_t kSegment = 5;
  SegmentExecutor executor(bool counted) const {
    return {rank_plan, DType::kFloat32, ReduceOp::kSum, {kSegment, counted}, memory};
  }
};

// What the other rank sends: count `count`, all elements `value`.
void fill_wire(std::span<std::byte> wire, std::uint16_t count, float value) {
  for (std::size_t i = 0; i < wire.size() / sizeof(float); ++i) {
    if (i % Pair::kSegment == 0) {
      std::memset(&wire[i * sizeof(float)], 0, sizeof(float));
      std::memcpy(&wire[i * sizeof(float)], &count, sizeof(count));
    } else {
      std::memcpy(&wire[i * sizeof(float)], &value, sizeof(value));
    }
  }
}

TEST(SegmentExecutor, outgoing__exact_is_the_chunk_and_lossy_has_counts) {
  const Pair pair;
  SegmentExecutor::Ready ready;
  SegmentExecutor exact = pair.executor(false);
  ASSERT_TRUE(exact.poll_ready(ready));
  EXPECT_EQ(ready.segments, (exec::Run{0, 2}));
  EXPECT_EQ(exact.outgoing(ready.send).size(), 10 * sizeof(float));
  EXPECT_FALSE(exact.poll_ready(ready));
  SegmentExecutor lossy = pair.executor(true);
  ASSERT_TRUE(lossy.poll_ready(ready));
  // Ten elements make three segments of four, four and two.
  EXPECT_EQ(ready.segments, (exec::Run{0, 3}));
  ASSERT_EQ(lossy.outgoing(ready.send).size(), (10 + 3) * sizeof(float));
  std::vector<std::byte> wanted(lossy.outgoing(ready.send).size());
  fill_wire(wanted, 1, 2.0F);
  EXPECT_EQ(std::memcmp(lossy.outgoing(ready.send).data(), wanted.data(), wanted.size()), 0);
}

TEST(SegmentExecutor, finish__averages_over_what_arrived) {
  for (const bool mean : {true, false}) {
    SCOPED_TRACE(mean);
    Pair pair;
    SegmentExecutor executor = pair.executor(true);
    SegmentExecutor::Ready ready;
    ASSERT_TRUE(executor.poll_ready(ready));
    EXPECT_TRUE(executor.outstanding(0));
    fill_wire(executor.incoming(0), 3, 24.0F);  // three contributions of 8 each
    executor.arrived(0, {2, 3});
    executor.arrived(0, {0, 1});
    EXPECT_TRUE(executor.outstanding(0));
    executor.ended(0);
    EXPECT_FALSE(executor.outstanding(0));
    EXPECT_FALSE(executor.done());
    executor.sent(ready.send);
    ASSERT_TRUE(executor.done());
    executor.finish(mean, 4);
    // (2 + 24) / 4; in the lost segment this rank has only its own.
    const float scale = mean ? 1.0F : 4.0F;
    for (std::size_t i = 0; i < pair.values.size(); ++i) {
      EXPECT_FLOAT_EQ(pair.values[i], scale * (i / 4 == 1 ? 2.0F : 6.5F)) << i;
    }
    EXPECT_DOUBLE_EQ(executor.arrived_fraction(), 2.0 / 3);
  }
}

TEST(SegmentExecutor, keep_residual__the_contribution_less_an_average_of_too_few) {
  Pair pair;
  std::vector<float> residual = pair.values;  // the contribution: 2
  SegmentExecutor executor = pair.executor(true);
  SegmentExecutor::Ready ready;
  ASSERT_TRUE(executor.poll_ready(ready));
  fill_wire(executor.incoming(0), 2, 16.0F);
  executor.arrived(0, {0, 1});
  executor.arrived(0, {2, 3});
  executor.ended(0);
  executor.sent(ready.send);
  executor.finish(true, 4);
  executor.keep_residual(4, pair.memory[0], reinterpret_cast<std::byte*>(residual.data()));
  // Less (2 + 16) / 3; in the lost segment the average is this rank's own.
  for (std::size_t i = 0; i < residual.size(); ++i)
    EXPECT_FLOAT_EQ(residual[i], i / 4 == 1 ? 0.0F : -4.0F) << i;
  residual = std::vector<float>(10, 2.0F);
  executor.keep_residual(3, pair.memory[0], reinterpret_cast<std::byte*>(residual.data()));
  for (const float rest : residual) EXPECT_EQ(rest, 0.0F) << "an average of all";
}

// The executors of all ranks of a plan, and segments that fly between them.
class Ranks {
 public:
  Ranks(const plan::Plan& plan, DType type, SegmentExecutor::Layout layout, Memory memory)
      : memory_(std::move(memory)) {
    for (int r = 0; r < plan.ranks; ++r) plans_.emplace_back(plan, Rank(r));
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      std::vector<std::byte*> places;
      for (const RankPlan::Buffer& buffer : plans_[r].buffers()) {
        const auto first = static_cast<std::size_t>(plan.chunks[buffer.chunk.index()].offset);
        places.push_back(memory_[r].data() + first * size_of(type));
      }
      executors_.emplace_back(plans_[r], type, ReduceOp::kSum, layout, places);
      segment_bytes_ = static_cast<std::size_t>(layout.segment_elements) * size_of(type);
      flying_.emplace_back(plans_[r].sends().size());
      over_.emplace_back(plans_[r].sends().size());
    }
    for (std::size_t r = 0; r < plans_.size(); ++r) collect(r);
  }

  // Moves segments in random order until nothing moves. Each transfer may lose `bound` of its
  // segments, and loses a segment with probability `loss` as long as it may. Without loss it ends
  // when all has arrived; otherwise at any time after the bound is kept, so that some segments were
  // never sent.
  void run(double bound, double loss, Prng& prng) {
    std::vector<std::pair<std::size_t, std::uint32_t>> busy;
    while (true) {
      busy.clear();
      for (std::size_t r = 0; r < plans_.size(); ++r) {
        for (std::uint32_t send = 0; send < flying_[r].size(); ++send) {
          if (!over_[r][send] && may_move(r, send, bound)) busy.emplace_back(r, send);
        }
      }
      if (busy.empty()) return;
      const auto [r, send] = busy[prng.below(busy.size())];
      move(r, send, bound, loss, prng);
    }
  }

  [[nodiscard]] std::size_t size() const { return executors_.size(); }
  [[nodiscard]] SegmentExecutor& executor(std::size_t r) { return executors_[r]; }
  [[nodiscard]] const Memory& memory() const { return memory_; }
  // Segments that were on their way while others of their chunk had not arrived at their sender.
  [[nodiscard]] std::uint64_t early() const { return early_; }

 private:
  struct Flying {
    std::vector<std::uint32_t> segments;  // that may arrive
    std::uint32_t ready = 0;
    std::uint32_t arrived = 0;
    std::uint32_t lost = 0;
  };

  std::uint32_t segments_of(std::size_t r, std::uint32_t send) const {
    return static_cast<std::uint32_t>(executors_[r].segments_of(plans_[r].sends()[send].buffer));
  }
  static std::uint32_t may_lose(std::uint32_t segments, double bound) {
    return static_cast<std::uint32_t>(bound * segments);
  }
  bool enough(std::size_t r, std::uint32_t send, double bound) const {
    const std::uint32_t segments = segments_of(r, send);
    return flying_[r][send].arrived + may_lose(segments, bound) >= segments;
  }
  bool may_move(std::size_t r, std::uint32_t send, double bound) const {
    return !flying_[r][send].segments.empty() || enough(r, send, bound);
  }

  void collect(std::size_t r) {
    SegmentExecutor::Ready ready;
    while (executors_[r].poll_ready(ready)) {
      Flying& flying = flying_[r][ready.send];
      for (std::size_t s = ready.segments.begin; s < ready.segments.end; ++s) {
        flying.segments.push_back(static_cast<std::uint32_t>(s));
        ++flying.ready;
      }
      const RankPlan::Send& send = plans_[r].sends()[ready.send];
      if (send.after == 0) continue;
      const RankPlan::Buffer& buffer = plans_[r].buffers()[send.buffer];
      if (executors_[r].outstanding(buffer.arrivals[send.after - 1])) ++early_;
    }
  }

  void move(std::size_t r, std::uint32_t send, double bound, double loss, Prng& prng) {
    Flying& flying = flying_[r][send];
    const RankPlan::Send& s = plans_[r].sends()[send];
    const std::size_t to = s.target.index();
    if (enough(r, send, bound) && (flying.segments.empty() || prng.chance(0.3))) {
      over_[r][send] = true;
      executors_[to].ended(s.arrival);
      executors_[r].sent(send);
    } else {
      const std::size_t at = prng.below(flying.segments.size());
      const std::uint32_t segment = flying.segments[at];
      if (flying.lost < may_lose(segments_of(r, send), bound) && prng.chance(loss)) {
        ++flying.lost;
        flying.segments.erase(flying.segments.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      }
      flying.segments.erase(flying.segments.begin() + static_cast<std::ptrdiff_t>(at));
      const auto wire = executors_[r].outgoing(send);
      const auto target = executors_[to].incoming(s.arrival);
      const std::size_t first = segment * segment_bytes_;
      const std::size_t bytes = std::min(segment_bytes_, wire.size() - first);
      std::memcpy(target.data() + first, wire.data() + first, bytes);
      ++flying.arrived;
      executors_[to].arrived(s.arrival, {segment, segment + 1});
    }
    collect(to);
  }

  Memory memory_;
  std::deque<RankPlan> plans_;
  std::deque<SegmentExecutor> executors_;
  std::size_t segment_bytes_ = 0;
  std::vector<std::vector<Flying>> flying_;  // [rank][send]
  std::vector<std::vector<bool>> over_;      // [rank][send]
  std::uint64_t early_ = 0;
};

// Calls body(scheme, plan) with every scheme for allreduce and several numbers of ranks.
template <class Body>
void for_allreduces(std::int64_t elements, const Body& body) {
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    if (scheme->collectives.front() == plan::Collective::kMix) continue;
    for (const int ranks : {2, 3, 4, 7, 8}) {
      SCOPED_TRACE(fmt::format("{} ranks={}", scheme->name, ranks));
      const topology::Topology topology =
          *topology::topology_from_shorthand(fmt::format("single-switch:hosts={}", ranks));
      const auto plan = plan::make_plan(scheme->name, {.topology = topology, .elements = elements});
      if (plan.ok()) body(*plan);  // otherwise the scheme is for another collective
    }
  }
}

TEST(SegmentExecutor, run__every_scheme_is_the_serial_sum_and_forwards_before_chunks_are_whole) {
  Prng prng(20);
  std::uint64_t early = 0;
  for_allreduces(530, [&](const plan::Plan& plan) {
    const Memory memory = random_memory(plan.ranks, 530 * 4, DType::kFloat32, prng);
    Ranks ranks(plan, DType::kFloat32, {7, false}, memory);
    ranks.run(0, 0, prng);
    for (std::size_t r = 0; r < ranks.size(); ++r) EXPECT_TRUE(ranks.executor(r).done()) << r;
    EXPECT_EQ(ranks.memory(), serial(plan, DType::kFloat32, ReduceOp::kSum, memory));
    early += ranks.early();
  });
  EXPECT_GT(early, 1000U);
}

// Contributions are all ones, so a sum is its count, whatever was lost: the average must be one.
// With the contribution of rank r worth 2^r, a sum shows who is in it, and each only once.
TEST(SegmentExecutor, run__with_loss_counts_are_those_of_what_is_in_the_sums) {
  Prng prng(21);
  std::uint64_t lost = 0;
  for_allreduces(530, [&](const plan::Plan& plan) {
    for (const bool ones : {true, false}) {
      Memory memory;
      for (int r = 0; r < plan.ranks; ++r) {
        const std::vector<float> own(530, ones ? 1.0F : static_cast<float>(1 << r));
        const auto bytes = std::as_bytes(std::span(own));
        memory.emplace_back(bytes.begin(), bytes.end());
      }
      Ranks ranks(plan, DType::kFloat32, {8, true}, std::move(memory));
      ranks.run(0.25, 0.2, prng);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        SegmentExecutor& executor = ranks.executor(r);
        ASSERT_TRUE(executor.done()) << r;
        EXPECT_GE(executor.arrived_fraction(), 0.75) << "each transfer may lose a quarter";
        if (executor.arrived_fraction() < 1) ++lost;
        if (ones) executor.finish(true, plan.ranks);
        for (std::size_t i = 0; i < 530; ++i) {
          float value = 0;
          std::memcpy(&value, ranks.memory()[r].data() + i * sizeof(float), sizeof(value));
          ASSERT_TRUE(!ones || value == 1.0F) << r << ' ' << i << ' ' << value;
          const auto who = static_cast<std::uint32_t>(value);
          ASSERT_TRUE(ones || (value == static_cast<float>(who) && who < 1U << plan.ranks)) << i;
          ASSERT_NE(who, 0U);
        }
      }
    }
  });
  EXPECT_GT(lost, 100U);
}

// A receiver may have enough before all of a chunk was ready at its sender.
TEST(SegmentExecutor, sent__before_all_was_ready) {
  const topology::Topology topology = *topology::topology_from_shorthand("single-switch:hosts=3");
  const plan::Plan plan = *plan::make_plan("ring", {.topology = topology, .elements = 120});
  const RankPlan rank_plan(plan, Rank(0));
  std::vector<float> values(120, 1.0F);
  std::vector<std::byte*> memory;
  for (const RankPlan::Buffer& buffer : rank_plan.buffers()) {
    memory.push_back(
        reinterpret_cast<std::byte*>(values.data() + plan.chunks[buffer.chunk.index()].offset));
  }
  SegmentExecutor executor(rank_plan, DType::kFloat32, ReduceOp::kSum, {11, true}, memory);
  std::vector<std::uint32_t> sends;
  SegmentExecutor::Ready ready;
  while (executor.poll_ready(ready)) sends.push_back(ready.send);
  // The first reduction arrives but for a segment, and its sum is sent on.
  std::uint32_t arrival = 0;
  while (rank_plan.arrivals()[arrival].kind != plan::TransferKind::kReduce) ++arrival;
  std::ranges::fill(executor.incoming(arrival), std::byte{0});
  executor.arrived(arrival, {0, 2});
  ASSERT_TRUE(executor.poll_ready(ready));
  EXPECT_EQ(ready.segments, (exec::Run{0, 2}));
  executor.sent(ready.send);
  executor.arrived(arrival, {2, 3});
  executor.ended(arrival);
  EXPECT_FALSE(executor.poll_ready(ready)) << "nobody waits for the rest";
  EXPECT_FALSE(executor.done());
}

}  // namespace
}  // namespace thalweg::exec
