// Every scheme, proved by verify() on every network that the rank count allows.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "base/prng.h"
#include "plan/scheme.h"
#include "plan/schemes_networks.h"
#include "plan/verify.h"
#include "sanitized.h"

namespace thalweg::plan {
namespace {

constexpr std::array kRankCounts{1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                 11, 12, 13, 14, 15, 16, 17, 24, 32, 33};
constexpr std::array<std::int64_t, 5> kSizes{0, 1, 7, 1000, 4096};

// The defaults, and some uses of the parameters.
std::vector<std::string> specs_of(const Scheme& scheme, Collective collective, int ranks) {
  std::vector<std::string> specs{std::string(scheme.name)};
  if (scheme.name == "k-nomial") {
    for (const int k : {3, 4, 7, 8192}) specs.push_back(fmt::format("k-nomial:k={}", k));
  }
  if (scheme.name == "ps" && collective == Collective::kAllreduce) {
    for (int m = 1; m <= ranks; m += 1 + ranks / 4) {
      specs.push_back(fmt::format("ps:servers={}", m));
      if (m == ranks) continue;
      specs.push_back(fmt::format("ps:placement=separate,servers={}", m));
    }
    if (ranks > 1) specs.emplace_back("ps:placement=separate");
  }
  if (scheme.name == "gossip") {
    for (const int t : {1, 2, 3, 4, 5, 1000001}) {
      specs.push_back(fmt::format("gossip:iteration={}", t));
    }
  }
  return specs;
}

std::vector<Rank> roots_of(Collective collective, int ranks) {
  if (!has_root(collective)) return {Rank(0)};
  std::set<Rank> roots{Rank(0), Rank(ranks / 2), Rank(ranks - 1)};
  return {roots.begin(), roots.end()};
}

Plan must_plan(const std::string& spec, const PlanRequest& request) {
  Result<Plan> plan = make_plan(spec, request);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return plan.ok() ? *plan : Plan{};
}

int must_steps(const std::string& spec, const topology::Topology& topology,
               Collective collective = Collective::kAllreduce, std::int64_t elements = 4096) {
  const Plan plan =
      must_plan(spec, {.collective = collective, .topology = topology, .elements = elements});
  const auto proof = verify(plan);
  EXPECT_TRUE(proof.ok()) << proof.error().message();
  return proof.ok() ? proof->steps : -1;
}

int floor_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; }
int ceil_log2(int n) { return n == 1 ? 0 : floor_log2(n - 1) + 1; }

// Folding in and folding out the ranks beyond a power of two takes one step each. But a chain
// through both and all steps between them leads from a rank that took one in to the opposite rank,
// and exists only if more than half of the ranks took one in.
int butterfly_steps(int w) {
  const int active = 1 << floor_log2(w);
  const int folded = w - active;
  return floor_log2(w) + (folded > 0 ? 1 : 0) + (folded > active / 2 ? 1 : 0);
}

TEST(Schemes, all__verified_on_every_network) {
  int plans = 0;
  for (const int ranks : kRankCounts) {
    if (kUnderSanitizer && ranks > 17) break;
    for (const TestNetwork& network : networks_of(ranks)) {
      ASSERT_EQ(network.topology.host_count(), ranks) << network.name;
      for (const Scheme* scheme : all_schemes()) {
        for (const Collective collective : scheme->collectives) {
          for (const std::string& spec : specs_of(*scheme, collective, ranks)) {
            for (const Rank root : roots_of(collective, ranks)) {
              for (const std::int64_t elements : kSizes) {
                SCOPED_TRACE(fmt::format("{} {} on {}, root {}, {} elements", spec,
                                         name_of(collective), network.name, root.value(),
                                         elements));
                const auto plan = make_plan(spec, {.collective = collective,
                                                   .topology = network.topology,
                                                   .elements = elements,
                                                   .root = root});
                ASSERT_TRUE(plan.ok()) << plan.error().message();
                const Status shape = check_shape(*plan);
                ASSERT_TRUE(shape.ok()) << shape.error().message();
                const auto proof = verify(*plan);
                ASSERT_TRUE(proof.ok()) << proof.error().message();
                ASSERT_EQ(plan->scheme, spec);
                ++plans;
              }
            }
          }
        }
      }
    }
  }
  RecordProperty("plans", plans);
}

TEST(Schemes, all__random_uneven_networks) {
  constexpr std::uint64_t kSeed = 20201;
  for (std::uint64_t round = 0; round < 60; ++round) {
    SCOPED_TRACE(fmt::format("seed {} fork {}", kSeed, round));
    Prng prng = Prng(kSeed).fork(round);
    std::vector<std::vector<int>> pods(1 + prng.below(4));
    for (auto& racks : pods) {
      racks.resize(1 + prng.below(4));
      for (int& hosts : racks) hosts = 1 + static_cast<int>(prng.below(7));
    }
    const TestNetwork network = pod_network(pods, static_cast<int>(prng.below(4)));
    const auto elements = static_cast<std::int64_t>(prng.below(10000));
    const Rank root(
        static_cast<int>(prng.below(static_cast<std::uint64_t>(network.topology.host_count()))));
    for (const Scheme* scheme : all_schemes()) {
      for (const Collective collective : scheme->collectives) {
        SCOPED_TRACE(fmt::format("{} {} on {}", scheme->name, name_of(collective), network.name));
        const Plan plan = must_plan(std::string(scheme->name), {.collective = collective,
                                                                .topology = network.topology,
                                                                .elements = elements,
                                                                .root = root});
        const auto proof = verify(plan);
        ASSERT_TRUE(proof.ok()) << proof.error().message();
      }
    }
  }
}

TEST(Schemes, one_rank__nothing_moves) {
  const TestNetwork network = rack_network({1});
  for (const Scheme* scheme : all_schemes()) {
    for (const Collective collective : scheme->collectives) {
      const Plan plan =
          must_plan(std::string(scheme->name),
                    {.collective = collective, .topology = network.topology, .elements = 100});
      EXPECT_TRUE(plan.transfers.empty()) << scheme->name;
      EXPECT_FALSE(plan.chunks.empty()) << scheme->name;
    }
  }
}

TEST(Schemes, steps__formulas_of_a_flat_network) {
  for (const int w : kRankCounts) {
    if (w == 1) continue;
    SCOPED_TRACE(w);
    const TestNetwork network = rack_network({w});
    const topology::Topology& t = network.topology;
    EXPECT_EQ(must_steps("ps", t), 2);
    EXPECT_EQ(must_steps("ps:servers=1,placement=separate", t), w == 2 ? 0 : 2);
    EXPECT_EQ(must_steps("ps", t, Collective::kReduce), 1);
    EXPECT_EQ(must_steps("ring", t), 2 * (w - 1));
    EXPECT_EQ(must_steps("ring", t, Collective::kReduceScatter), w - 1);
    EXPECT_EQ(must_steps("ring", t, Collective::kAllGather), w - 1);
    EXPECT_EQ(must_steps("ring", t, Collective::kBroadcast), w - 1);
    EXPECT_EQ(must_steps("ring", t, Collective::kReduce), w - 1);
    EXPECT_EQ(must_steps("direct", t, Collective::kAllToAll), 1);
    EXPECT_EQ(must_steps("direct", t, Collective::kReduceScatter), 1);
    EXPECT_EQ(must_steps("direct", t, Collective::kAllGather), 1);
    EXPECT_EQ(must_steps("gossip", t, Collective::kMix), 1);
    EXPECT_EQ(must_steps("double-tree", t), 2 * floor_log2(w));
    EXPECT_EQ(must_steps("double-tree", t, Collective::kBroadcast), floor_log2(w - 1) + 1);
    EXPECT_EQ(must_steps("double-tree", t, Collective::kReduce), floor_log2(w - 1) + 1);
    EXPECT_EQ(must_steps("hierarchical", t), 2 * (w - 1));
    EXPECT_EQ(must_steps("blueconnect", t), 2 * (w - 1));
    EXPECT_EQ(must_steps("plink", t), 2);
    EXPECT_EQ(must_steps("butterfly", t), butterfly_steps(w));
  }
}

// The chain to a rank has one transfer for each nonzero digit of the distance; the number of
// rounds, ⌈log w⌉, is reached if w is a power.
TEST(Schemes, steps__logarithmic) {
  for (const int w : kRankCounts) {
    SCOPED_TRACE(w);
    const TestNetwork network = rack_network({w});
    const topology::Topology& t = network.topology;
    for (const int k : {2, 3, 4}) {
      int most_digits = 0;
      for (int i = 0; i < w; ++i) {
        int digits = 0;
        for (int rest = i; rest > 0; rest /= k) digits += rest % k != 0 ? 1 : 0;
        most_digits = std::max(most_digits, digits);
      }
      const std::string spec = fmt::format("k-nomial:k={}", k);
      EXPECT_EQ(must_steps(spec, t), 2 * most_digits);
      EXPECT_EQ(must_steps(spec, t, Collective::kReduce), most_digits);
      EXPECT_EQ(must_steps(spec, t, Collective::kBroadcast), most_digits);
    }
    const bool power_of_two = (w & (w - 1)) == 0;
    const int halving = must_steps("halving-doubling", t);
    EXPECT_LE(halving, 2 * ceil_log2(w));
    if (power_of_two) {
      EXPECT_EQ(halving, 2 * ceil_log2(w));
    }
    EXPECT_EQ(must_steps("halving-doubling", t, Collective::kReduceScatter), halving / 2);
    EXPECT_EQ(must_steps("halving-doubling", t, Collective::kAllGather), halving / 2);
  }
}

TEST(Schemes, steps__by_regions) {
  for (const int racks : {2, 3, 4, 8}) {
    for (const int hosts : {2, 3, 4, 5}) {
      SCOPED_TRACE(fmt::format("{} racks of {}", racks, hosts));
      const TestNetwork network =
          rack_network(std::vector<int>(static_cast<std::size_t>(racks), hosts));
      EXPECT_EQ(must_steps("hierarchical", network.topology), 2 * (hosts + racks - 2));
      EXPECT_EQ(must_steps("blueconnect", network.topology), 2 * (hosts - 1 + racks - 1));
      EXPECT_EQ(must_steps("plink", network.topology), 4);
    }
  }
  const TestNetwork nested = pod_network({{4, 4}, {4, 4}, {4, 4}});
  EXPECT_EQ(must_steps("blueconnect", nested.topology), 2 * (3 + 1 + 2));
  EXPECT_EQ(must_steps("plink", nested.topology), 4);
}

}  // namespace
}  // namespace thalweg::plan
