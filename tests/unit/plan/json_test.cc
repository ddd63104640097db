#include "plan/format/json.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/messages.h"
#include "plan/builder.h"
#include "plan/scheme.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

// Three ranks in a chain: 2 → 1 → 0 and back.
Plan chain() {
  Plan header;
  header.scheme = "by \"hand\"";
  header.ranks = 3;
  header.contributors = 3;
  header.elements = 10;
  PlanBuilder builder(header);
  const ChunkIndex chunk = builder.add_chunk({.offset = 0, .length = 10});
  builder.begin_round();
  builder.reduce(Rank(2), Rank(1), chunk);
  builder.begin_round();
  builder.reduce(Rank(1), Rank(0), chunk);
  builder.begin_round();
  builder.copy(Rank(0), Rank(1), chunk);
  builder.begin_round();
  builder.copy(Rank(1), Rank(2), chunk);
  return std::move(builder).finish();
}

constexpr std::string_view kChainText = R"({
  "format": "thalweg-plan",
  "version": 1,
  "scheme": "by \"hand\"",
  "collective": "allreduce",
  "ranks": 3,
  "contributors": 3,
  "elements": 10,
  "element_bytes": 4,
  "chunks": [
    {"offset": 0, "length": 10}
  ],
  "transfers": [
    {"from": 2, "to": 1, "chunk": 0, "after": 0, "kind": "reduce"},
    {"from": 1, "to": 0, "chunk": 0, "after": 1, "kind": "reduce"},
    {"from": 0, "to": 1, "chunk": 0, "after": 1, "kind": "copy"},
    {"from": 1, "to": 2, "chunk": 0, "after": 2, "kind": "copy"}
  ]
}
)";

TEST(PlanJson, to_json__one_transfer_a_line) { EXPECT_EQ(plan_to_json(chain()), kChainText); }

TEST(PlanJson, from_json__inverse_of_to_json) {
  const auto plan = plan_from_json(kChainText, "chain.json");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(*plan, chain());
}

TEST(PlanJson, from_json__keys_in_any_order) {
  const auto plan = plan_from_json(R"({"transfers": [], "chunks": [{"length": 1, "offset": 0}],
      "element_bytes": 8, "elements": 1, "contributors": 1, "ranks": 1, "collective": "allreduce",
      "scheme": "none", "version": 1, "format": "thalweg-plan"})",
                                   "p.json");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->element_bytes, 8);
  EXPECT_EQ(plan->chunks.size(), 1U);
}

TEST(PlanJson, every_scheme_and_collective__round_trip) {
  const auto topology = topology::topology_from_shorthand("leaf-spine:racks=2,hosts=3,spines=1");
  ASSERT_TRUE(topology) << topology.error().message();
  int plans = 0;
  for (const Scheme* scheme : all_schemes()) {
    for (const Collective collective : scheme->collectives) {
      SCOPED_TRACE(testing::Message() << scheme->name << " " << name_of(collective));
      const auto plan = make_plan(
          scheme->name, {.collective = collective, .topology = *topology, .elements = 1003});
      ASSERT_TRUE(plan) << plan.error().message();
      const auto again = plan_from_json(plan_to_json(*plan), "again.json");
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(*again, *plan);
      ++plans;
    }
  }
  EXPECT_GE(plans, 10);
}

TEST(PlanJson, mixes_and_helpers__round_trip) {
  Plan plan = chain();
  plan.collective = Collective::kMix;
  plan.ranks = 4;
  plan.mixes = {{Rank(0), Rank(1)}, {Rank(2)}, {}};
  const auto again = plan_from_json(plan_to_json(plan), "mix.json");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, plan);
}

struct BadText {
  std::string_view what;
  std::string_view with;
  std::string_view error;  // what the message must contain, after the file's name
};

TEST(PlanJson, from_json__errors_name_the_place_the_value_and_what_is_allowed) {
  const std::vector<BadText> cases{
      {"\"after\": 0", "\"after\": -1", "transfers[0].after: -1 is not allowed: 0 to 65535"},
      {"\"after\": 2", "\"after\": 2147483648",
       "transfers[3].after: 2147483648 is not allowed: 0 to 65535"},
      {"\"after\": 2", "\"after\": 1.5", "transfers[3].after: 1.5 is not allowed: a whole number"},
      {"\"after\": 2", "\"after\": 2e3", "transfers[3].after: 2e3 is not allowed: a whole number"},
      {"\"after\": 2", "\"after\": \"2\"",
       "transfers[3].after: \"2\" is not allowed: a whole number"},
      {"\"after\": 2", "\"after\": null", "transfers[3].after: null is not allowed"},
      {"\"after\": 2", "\"after\": [2]", "transfers[3].after: an array is not allowed"},
      {"\"after\": 2", "\"after\": {}", "transfers[3].after: an object is not allowed"},
      {"\"after\": 2, ", "", "transfers[3].after: missing: a whole number"},
      {"\"after\": 2", "\"after\": 2, \"after\": 2",
       "transfers[3].after: the key stands there twice"},
      {"\"after\": 2", "\"later\": 2",
       "transfers[3]: \"later\" is not a key: from, to, chunk, after, kind"},
      {"\"reduce\"", "\"add\"", "transfers[0].kind: \"add\" is not allowed: reduce or copy"},
      {"\"reduce\"", "7", "transfers[0].kind: 7 is not allowed: a string"},
      {"\"length\": 10", "\"length\": 0", "chunks[0].length: 0 is not allowed: 1 or more"},
      {"\"offset\": 0", "\"offset\": 99999999999999999999",
       "chunks[0].offset: 99999999999999999999 is not allowed: a whole number, 0 or more"},
      {"\"offset\": 0", "\"offset\": 9300000000000000000",
       "chunks[0].offset: 9300000000000000000 is not allowed: a whole number, 0 or more"},
      {"\"ranks\": 3", "\"ranks\": 8193", "ranks: 8193 is not allowed: 1 to 8192"},
      {"\"ranks\": 3", "\"ranks\": true", "ranks: true is not allowed: a whole number"},
      {"\"version\": 1", "\"version\": 2", "version: 2 is not allowed: 1"},
      {"\"thalweg-plan\"", "\"plan\"", "format: \"plan\" is not allowed: thalweg-plan"},
      {"\"allreduce\"", "\"allsum\"", "collective: 'allsum' is not a collective: allreduce"},
      {"  \"elements\": 10,\n", "", "elements: missing: a whole number"},
      {"\"scheme\"", "\"Scheme\"", "the plan: \"Scheme\" is not a key: format, version"},
      {"\"chunks\": [", "\"chunks\": [3, ", "chunks[0]: 3 is not allowed: an object"},
      {"\"chunks\": [", "\"mixes\": [[0, -1]], \"chunks\": [",
       "mixes[0][1]: -1 is not allowed: a rank"},
      {"\"chunks\": [", "\"mixes\": [0], \"chunks\": [", "mixes[0]: 0 is not allowed: an array"},
      {"\"chunk\": 0", "\"chunk\": 1", "transfers[0]"},
      {"\"to\": 1", "\"to\": 3", "transfers[0]"},
      {"\"ranks\": 3", "\"ranks\": 3,,", "line 6, column"},
      {"{\n  \"format\"", "[\n  \"format\"", "the plan: an array is not allowed: an object"},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(testing::Message() << bad.what << " as " << bad.with);
    const auto plan = plan_from_json(replaced(kChainText, bad.what, bad.with), "bad.json");
    ASSERT_FALSE(plan);
    const std::string& message = plan.error().message();
    EXPECT_TRUE(message.starts_with("bad.json: ")) << message;
    EXPECT_NE(message.find(bad.error), std::string::npos) << message;
  }
}

TEST(PlanJson, from_json__every_beginning_of_a_plan_is_an_error) {
  // The last newline may be missing, but not the brace before it.
  for (std::size_t size = 0; size + 1 < kChainText.size(); ++size) {
    EXPECT_FALSE(plan_from_json(kChainText.substr(0, size), "cut.json")) << size;
  }
  EXPECT_FALSE(plan_from_json(std::string(kChainText) + "{}", "two.json"));
}

TEST(PlanJson, from_json__deep_nesting_is_refused_at_once) {
  constexpr std::size_t kDepth = 3'000'000;
  const auto arrays = plan_from_json(std::string(kDepth, '['), "deep.json");
  ASSERT_FALSE(arrays);
  EXPECT_NE(arrays.error().message().find("an array is not allowed"), std::string::npos);
  const auto within = plan_from_json("{\"mixes\": " + std::string(kDepth, '['), "deep.json");
  ASSERT_FALSE(within);
  EXPECT_NE(within.error().message().find("mixes[0][0]: an array"), std::string::npos)
      << within.error().message();
}

TEST(PlanJson, from_json__a_long_value_is_cut_in_the_error) {
  const auto plan = plan_from_json(
      replaced(kChainText, "\"reduce\"", "\"" + std::string(100'000, 'x') + "\""), "long.json");
  ASSERT_FALSE(plan);
  EXPECT_LT(plan.error().message().size(), 300U);
}

}  // namespace
}  // namespace thalweg::plan
