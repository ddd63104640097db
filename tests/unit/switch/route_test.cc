#include "switch/queueing/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace thalweg::switches {
namespace {

TEST(PathChooser, flow_hash__same_flow_same_path_and_all_paths_used) {
  PathChooser chooser(PathChoice::kFlowHash, Prng(5));
  std::vector<int> used(7, 0);
  for (std::uint32_t flow = 0; flow < 7000; ++flow) {
    std::uint32_t key = flow;
    const std::uint32_t first = chooser.choose(key, 7);
    EXPECT_EQ(chooser.choose(key, 7), first);
    ++used[first];
  }
  EXPECT_GT(*std::min_element(used.begin(), used.end()), 850);
  EXPECT_LT(*std::max_element(used.begin(), used.end()), 1150);
}

// The flows that one switch sends to port 0 must not all go to the same port of the next.
TEST(PathChooser, flow_hash__salted_per_switch) {
  PathChooser first(PathChoice::kFlowHash, Prng(1));
  PathChooser second(PathChoice::kFlowHash, Prng(2));
  std::vector<int> used(4, 0);
  for (std::uint32_t flow = 0; flow < 4000; ++flow) {
    std::uint32_t key = flow;
    if (first.choose(key, 4) == 0) ++used[second.choose(key, 4)];
  }
  EXPECT_GT(*std::min_element(used.begin(), used.end()), 180);
}

TEST(PathChooser, per_packet__one_flow_uses_all_paths_evenly) {
  PathChooser chooser(PathChoice::kPerPacket, Prng(9));
  std::vector<int> used(5, 0);
  for (int i = 0; i < 5000; ++i) {
    std::uint32_t key = 42;
    ++used[chooser.choose(key, 5)];
  }
  EXPECT_GT(*std::min_element(used.begin(), used.end()), 880);
}

TEST(PathChooser, label__names_every_path_once) {
  PathChooser lower(PathChoice::kLabel, Prng(1));
  PathChooser upper(PathChoice::kLabel, Prng(2));
  std::set<std::pair<std::uint32_t, std::uint32_t>> paths;
  for (std::uint32_t label = 0; label < 12; ++label) {
    std::uint32_t key = label;
    const std::uint32_t first = lower.choose(key, 4);
    paths.emplace(first, upper.choose(key, 3));
  }
  EXPECT_EQ(paths.size(), 12U);
}

TEST(PathChooser, label__is_not_used_up_where_there_is_no_choice) {
  PathChooser chooser(PathChoice::kLabel, Prng(1));
  std::uint32_t key = 7;
  EXPECT_EQ(chooser.choose(key, 1), 0U);
  EXPECT_EQ(key, 7U);
}

}  // namespace
}  // namespace thalweg::switches
