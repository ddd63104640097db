#include "exec/chunk_executor.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "plan/scheme.h"
#include "plan/verify.h"
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
  ChunkExecutor executor(std::int64_t segment) const {
    return {rank_plan, DType::kFloat32, ReduceOp::kSum, segment, memory};
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

TEST(ChunkExecutor, outgoing__exact_is_the_chunk_and_lossy_has_counts) {
  const Pair pair;
  std::uint32_t send = 0;
  ChunkExecutor exact = pair.executor(0);
  ASSERT_TRUE(exact.poll_ready(send));
  EXPECT_EQ(exact.outgoing(send).size(), 10 * sizeof(float));
  EXPECT_FALSE(exact.poll_ready(send));
  ChunkExecutor lossy = pair.executor(Pair::kSegment);
  ASSERT_TRUE(lossy.poll_ready(send));
  // Ten elements make three segments of four, four and two.
  ASSERT_EQ(lossy.outgoing(send).size(), (10 + 3) * sizeof(float));
  std::vector<std::byte> wanted(lossy.outgoing(send).size());
  fill_wire(wanted, 1, 2.0F);
  EXPECT_EQ(std::memcmp(lossy.outgoing(send).data(), wanted.data(), wanted.size()), 0);
}

TEST(ChunkExecutor, finish__averages_over_what_arrived) {
  for (const bool mean : {true, false}) {
    SCOPED_TRACE(mean);
    Pair pair;
    ChunkExecutor executor = pair.executor(Pair::kSegment);
    std::uint32_t send = 0;
    ASSERT_TRUE(executor.poll_ready(send));
    EXPECT_TRUE(executor.outstanding(0));
    fill_wire(executor.incoming(0), 3, 24.0F);  // three contributions of 8 each
    const std::vector<ChunkExecutor::Lost> lost = {{5, 10}};
    executor.arrived(0, lost);
    EXPECT_FALSE(executor.outstanding(0));
    EXPECT_FALSE(executor.done());
    executor.sent(send);
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

TEST(ChunkExecutor, keep_residual__the_contribution_less_an_average_of_too_few) {
  Pair pair;
  std::vector<float> residual = pair.values;  // the contribution: 2
  ChunkExecutor executor = pair.executor(Pair::kSegment);
  std::uint32_t send = 0;
  ASSERT_TRUE(executor.poll_ready(send));
  fill_wire(executor.incoming(0), 2, 16.0F);
  const std::vector<ChunkExecutor::Lost> lost = {{5, 10}};
  executor.arrived(0, lost);
  executor.sent(send);
  executor.finish(true, 4);
  executor.keep_residual(4, pair.memory[0], reinterpret_cast<std::byte*>(residual.data()));
  // Less (2 + 16) / 3; in the lost segment the average is this rank's own.
  for (std::size_t i = 0; i < residual.size(); ++i)
    EXPECT_FLOAT_EQ(residual[i], i / 4 == 1 ? 0.0F : -4.0F) << i;
  residual = std::vector<float>(10, 2.0F);
  executor.keep_residual(3, pair.memory[0], reinterpret_cast<std::byte*>(residual.data()));
  for (const float rest : residual) EXPECT_EQ(rest, 0.0F) << "an average of all";
}

TEST(ChunkExecutor, run__every_scheme_sums_exactly_in_any_order_of_arrival) {
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    if (scheme->collectives.front() == plan::Collective::kMix) continue;
    for (int ranks = 2; ranks <= 9; ++ranks) {
      SCOPED_TRACE(fmt::format("{} ranks={}", scheme->name, ranks));
      const topology::Topology topology =
          *topology::topology_from_shorthand(fmt::format("single-switch:hosts={}", ranks));
      const auto plan = plan::make_plan(scheme->name, {.topology = topology, .elements = 53});
      if (!plan.ok()) continue;  // the scheme is for another collective
      std::vector<std::vector<std::int32_t>> values;
      std::deque<RankPlan> plans;
      std::deque<ChunkExecutor> executors;
      for (int r = 0; r < ranks; ++r) {
        values.emplace_back(53, 1 << r);
        plans.emplace_back(*plan, Rank(r));
      }
      for (int r = 0; r < ranks; ++r) {
        std::vector<std::byte*> memory;
        for (const RankPlan::Buffer& buffer : plans[static_cast<std::size_t>(r)].buffers()) {
          memory.push_back(reinterpret_cast<std::byte*>(values[static_cast<std::size_t>(r)].data() +
                                                        plan->chunks[buffer.chunk.index()].offset));
        }
        executors.emplace_back(plans[static_cast<std::size_t>(r)], DType::kInt32, ReduceOp::kSum, 0,
                               memory);
      }
      // The newest send goes first, so arrivals come out of order.
      std::vector<std::pair<std::size_t, std::uint32_t>> flying;
      const auto collect = [&](std::size_t r) {
        std::uint32_t send = 0;
        while (executors[r].poll_ready(send)) flying.emplace_back(r, send);
      };
      for (std::size_t r = 0; r < executors.size(); ++r) collect(r);
      while (!flying.empty()) {
        const auto [r, send] = flying.back();
        flying.pop_back();
        const RankPlan::Send& s = plans[r].sends()[send];
        const auto wire = executors[r].outgoing(send);
        std::ranges::copy(wire, executors[s.target.index()].incoming(s.slot).begin());
        executors[r].sent(send);
        executors[s.target.index()].arrived(s.slot, {});
        collect(s.target.index());
      }
      for (std::size_t r = 0; r < executors.size(); ++r) {
        EXPECT_TRUE(executors[r].done());
        EXPECT_EQ(values[r], std::vector<std::int32_t>(53, (1 << ranks) - 1)) << r;
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::exec
