#include "plan/verify.h"

#include <gtest/gtest.h>

#include "plan/builder.h"
#include "plan/random_execution.h"
#include "plan/scheme.h"
#include "plan/schemes_networks.h"

namespace thalweg::plan {
namespace {

Plan empty_plan(int ranks, std::int64_t elements) {
  Plan plan;
  plan.ranks = plan.contributors = ranks;
  plan.elements = elements;
  return plan;
}

// Three ranks in a line: 0 → 1 → 2 and back.
Plan line_plan() {
  PlanBuilder builder(empty_plan(3, 10));
  const ChunkIndex chunk = builder.add_chunk({.offset = 0, .length = 10});
  builder.begin_round();
  builder.reduce(Rank(0), Rank(1), chunk);
  builder.begin_round();
  builder.reduce(Rank(1), Rank(2), chunk);
  builder.begin_round();
  builder.copy(Rank(2), Rank(1), chunk);
  builder.begin_round();
  builder.copy(Rank(1), Rank(0), chunk);
  return std::move(builder).finish();
}

std::string failure_of(const Plan& plan) {
  const auto proof = verify(plan);
  return proof.ok() ? "" : proof.error().message();
}

TEST(Verify, line__steps_and_no_staging) {
  const auto proof = verify(line_plan());
  ASSERT_TRUE(proof.ok()) << proof.error().message();
  EXPECT_EQ(proof->steps, 4);
  EXPECT_EQ(proof->step_of, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(proof->peak_staging(), Bytes(0));
}

TEST(Verify, dropped__names_who_misses_what) {
  Plan plan = line_plan();
  plan.transfers.pop_back();
  EXPECT_EQ(failure_of(plan), "chunk 0: rank 0 ends without the contribution of rank 1");
}

TEST(Verify, doubled_reduce__a_contribution_twice) {
  Plan plan = line_plan();
  plan.transfers.insert(plan.transfers.begin() + 1, plan.transfers[0]);
  EXPECT_EQ(failure_of(plan),
            "chunk 0: transfer 1 (0 → 1) adds the contribution of rank 0 a second time");
}

TEST(Verify, doubled_copy__brings_nothing) {
  Plan plan = line_plan();
  plan.transfers.push_back(plan.transfers.back());
  EXPECT_EQ(failure_of(plan),
            "chunk 0: transfer 4 (1 → 0) brings nothing that rank 0 does not hold already");
}

TEST(Verify, misordered__waits_for_what_comes_later) {
  Plan plan = line_plan();
  std::swap(plan.transfers[0], plan.transfers[1]);
  EXPECT_EQ(failure_of(plan),
            "chunk 0: transfer 0 (1 → 2) waits for version 1 of rank 1, which stands at version 0 "
            "when the transfers before it in the plan are done");
}

TEST(Verify, misdirected__someone_misses_it) {
  Plan plan = line_plan();
  plan.transfers[0].target = Rank(2);
  EXPECT_NE(failure_of(plan), "");
}

TEST(Verify, circular_wait__found) {
  Plan plan = line_plan();
  plan.transfers[0].after = 1;  // waits for a copy that waits for it
  EXPECT_NE(failure_of(plan).find("waits for version 1 of rank 0"), std::string::npos);
}

TEST(Verify, too_old_version__a_contribution_missing) {
  Plan plan = line_plan();
  plan.transfers[1].after = 0;
  EXPECT_EQ(failure_of(plan), "chunk 0: rank 0 ends without the contribution of rank 0");
}

TEST(Verify, empty_buffer__cannot_be_sent) {
  Plan plan = empty_plan(3, 1);
  plan.collective = Collective::kBroadcast;
  plan.root = Rank(0);
  plan.chunks = {{.offset = 0, .length = 1, .source = Rank(0), .target = {}}};
  plan.transfers = {{.source = Rank(1),
                     .target = Rank(2),
                     .chunk = ChunkIndex(0),
                     .after = 0,
                     .kind = TransferKind::kCopy}};
  EXPECT_EQ(failure_of(plan),
            "chunk 0: transfer 0 (1 → 2) carries nothing: rank 1 holds no value at version 0");
}

TEST(Verify, unwanted_contribution__named) {
  Plan plan = empty_plan(2, 1);
  plan.collective = Collective::kMix;
  plan.mixes = {{Rank(0)}, {Rank(1)}};
  plan.chunks = {{.offset = 0, .length = 1, .source = {}, .target = {}}};
  plan.transfers = {{.source = Rank(0),
                     .target = Rank(1),
                     .chunk = ChunkIndex(0),
                     .after = 0,
                     .kind = TransferKind::kReduce}};
  EXPECT_EQ(failure_of(plan),
            "chunk 0: rank 1 ends with the contribution of rank 0, which is not wanted");
}

// Two ranks that swap must put what arrives aside while the old value is still being read.
TEST(Verify, staging__a_swap_holds_one_chunk) {
  PlanBuilder builder(empty_plan(2, 10));
  const ChunkIndex chunk = builder.add_chunk({.offset = 0, .length = 10});
  builder.begin_round();
  builder.reduce(Rank(0), Rank(1), chunk);
  builder.reduce(Rank(1), Rank(0), chunk);
  const auto proof = verify(std::move(builder).finish());
  ASSERT_TRUE(proof.ok());
  EXPECT_EQ(proof->staging, (std::vector<Bytes>{Bytes(40), Bytes(40)}));
}

// A server applies its arrivals in order: all but the one whose turn it is may have to wait.
TEST(Verify, staging__a_server_holds_all_but_one) {
  PlanBuilder builder(empty_plan(5, 10));
  const ChunkIndex chunk = builder.add_chunk({.offset = 0, .length = 10});
  builder.begin_round();
  for (int r = 1; r < 5; ++r) builder.reduce(Rank(r), Rank(0), chunk);
  builder.begin_round();
  for (int r = 1; r < 5; ++r) builder.copy(Rank(0), Rank(r), chunk);
  const auto proof = verify(std::move(builder).finish());
  ASSERT_TRUE(proof.ok());
  EXPECT_EQ(proof->staging[0], Bytes(3 * 40));
  EXPECT_EQ(proof->staging[1], Bytes(0));
}

enum class Mutation { kDrop, kDouble, kMisdirect, kWrongSource, kOlder, kNewer, kWrongKind, kMove };
constexpr int kMutations = 8;

// Changes one transfer at random; returns false if the draw changes nothing.
bool mutate(Plan& plan, Mutation mutation, Prng& prng) {
  const auto at = static_cast<std::ptrdiff_t>(prng.below(plan.transfers.size()));
  PlanTransfer& t = plan.transfers[static_cast<std::size_t>(at)];
  const Rank other(static_cast<std::int32_t>(prng.below(static_cast<std::uint64_t>(plan.ranks))));
  switch (mutation) {
    case Mutation::kDrop:
      plan.transfers.erase(plan.transfers.begin() + at);
      return true;
    case Mutation::kDouble:
      plan.transfers.insert(plan.transfers.begin() + at, PlanTransfer(t));
      return true;
    case Mutation::kMisdirect:
      if (other == t.target || other == t.source) return false;
      t.target = other;
      return true;
    case Mutation::kWrongSource:
      if (other == t.target || other == t.source) return false;
      t.source = other;
      return true;
    case Mutation::kOlder:
      return t.after-- > 0;
    case Mutation::kNewer:
      ++t.after;
      return true;
    case Mutation::kWrongKind:
      t.kind = t.kind == TransferKind::kReduce ? TransferKind::kCopy : TransferKind::kReduce;
      return true;
    case Mutation::kMove:
      std::swap(t, plan.transfers[prng.below(plan.transfers.size())]);
      return true;
  }
  return false;
}

// Whatever is done to a plan, if verify() accepts it then a random execution gives the right
// numbers. A step that is dropped, doubled or misdirected is always found.
TEST(Verify, mutants__none_that_goes_wrong_is_accepted) {
  constexpr std::uint64_t kSeeds = 300;
  std::vector<TestNetwork> networks;
  for (const int ranks : {2, 3, 5, 8, 11}) {
    for (TestNetwork& network : networks_of(ranks)) networks.push_back(std::move(network));
  }
  std::vector<int> accepted(kMutations, 0);
  std::vector<int> tried(kMutations, 0);
  for (const Scheme* scheme : all_schemes()) {
    for (const Collective collective : scheme->collectives) {
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << scheme->name << ' ' << name_of(collective) << " seed " << seed);
        Prng prng(seed);
        const topology::Topology& topology = networks[prng.below(networks.size())].topology;
        Plan plan = make_plan(scheme->name, {.collective = collective,
                                             .topology = topology,
                                             .elements = 1 + static_cast<int>(prng.below(40)),
                                             .element_bytes = 4,
                                             .root = Rank(0)})
                        .value();
        ASSERT_EQ(execute_randomly(plan, prng), "");
        if (plan.transfers.empty()) continue;
        const auto mutation = static_cast<Mutation>(prng.below(kMutations));
        if (!mutate(plan, mutation, prng)) continue;
        const auto m = static_cast<std::size_t>(mutation);
        ++tried[m];
        const auto proof = verify(plan);
        if (!proof.ok()) continue;
        ++accepted[m];
        EXPECT_EQ(execute_randomly(plan, prng), "") << "accepted, mutation " << m;
      }
    }
  }
  for (int m = 0; m < kMutations; ++m) EXPECT_GT(tried[static_cast<std::size_t>(m)], 100);
  EXPECT_EQ(accepted[static_cast<std::size_t>(Mutation::kDrop)], 0);
  EXPECT_EQ(accepted[static_cast<std::size_t>(Mutation::kDouble)], 0);
  EXPECT_EQ(accepted[static_cast<std::size_t>(Mutation::kMisdirect)], 0);
}

}  // namespace
}  // namespace thalweg::plan
