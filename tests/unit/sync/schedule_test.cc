#include "sync/schedule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "sync/random_world.h"
#include "topology/format/load.h"

namespace thalweg::sync {
namespace {

using worlds::racks_of;

std::vector<Group> groups(std::initializer_list<std::initializer_list<int>> lists) {
  std::vector<Group> result;
  for (const auto& list : lists) {
    result.emplace_back();
    for (const int worker : list) result.back().emplace_back(worker);
  }
  return result;
}

// Figure 4: representatives take turns, the others average in their racks.
TEST(Schedule, init_groups__two_racks_take_turns) {
  const Schedule schedule = init_groups(racks_of({3, 3}), 1);
  ASSERT_EQ(schedule.period.size(), 3u);
  EXPECT_EQ(schedule.at(0), groups({{0, 3}, {1, 2}, {4, 5}}));
  EXPECT_EQ(schedule.at(1), groups({{0, 2}, {1, 4}, {3, 5}}));
  EXPECT_EQ(schedule.at(2), groups({{0, 1}, {2, 5}, {3, 4}}));
  EXPECT_EQ(schedule.at(3), schedule.at(0));
  EXPECT_EQ(schedule.group_of(4, Rank(4)), (Group{Rank(1), Rank(4)}));
}

// Figure 5: the slow rack's representative is in a pair, with another partner in every iteration.
TEST(Schedule, adjust_groups__slow_rack_is_paired_by_turns) {
  const WorkerTree tree = racks_of({3, 3, 3, 3});
  const Schedule schedule =
      *adjust_groups(tree, {.regions = {*tree.find("rack0")}, .workers = {}}, 1);
  EXPECT_EQ(schedule.at(0), groups({{0, 3}, {1, 2}, {4, 5}, {6, 9}, {7, 8}, {10, 11}}));
  EXPECT_EQ(schedule.at(1), groups({{0, 2}, {1, 7}, {3, 5}, {4, 10}, {6, 8}, {9, 11}}));
}

// Figure 6 and table III: worker 4 is in a pair of its rack and never a representative; the rest
// are a hub.
TEST(Schedule, adjust_groups__slow_nic_stays_in_its_rack) {
  const WorkerTree tree = racks_of({5, 3});
  const Schedule schedule =
      *adjust_groups(tree, {.regions = {*tree.find("rack0")}, .workers = {Rank(4)}}, 1);
  for (const Grouping& at : schedule.period) {
    for (const Group& group : at) {
      if (!std::ranges::count(group, Rank(4))) continue;
      EXPECT_EQ(group.size(), 2u);
      EXPECT_LT(group.front().value(), 4);
    }
  }
  EXPECT_EQ(schedule.at(0), groups({{0, 5}, {1, 4}, {2, 3}, {6, 7}}));
}

TEST(Schedule, init_groups__one_rack_is_bsp_and_racks_of_one_are_too) {
  EXPECT_EQ(init_groups(racks_of({4}), 1).period, std::vector<Grouping>{groups({{0, 1, 2, 3}})});
  EXPECT_EQ(init_groups(racks_of({1, 1, 1}), 1).period, std::vector<Grouping>{groups({{0, 1, 2}})});
}

// With turns in order alone, workers 0 and 2 would never be connected with 1 and 3.
TEST(Schedule, init_groups__racks_of_two_do_not_turn_in_step_for_ever) {
  const WorkerTree tree = racks_of({2, 2});
  const Schedule schedule = init_groups(tree, 1);
  EXPECT_GT(schedule.period.size(), 2u);
  EXPECT_TRUE(check_schedule(schedule, tree).ok());
}

TEST(Schedule, init_groups__nested_regions_send_one_worker_each_across) {
  const topology::Topology topology = *topology::topology_from_shorthand("fat-tree:k=4,host=10G");
  const WorkerTree tree = *WorkerTree::from_topology(topology);
  EXPECT_TRUE(check_schedule(init_groups(tree, 1), tree).ok());
}

void check_random(const WorkerTree& tree, Prng& random, const std::string& replay) {
  const Bottlenecks slow = worlds::random_bottlenecks(tree, random);
  const std::uint64_t seed = random.next();
  const Result<Schedule> schedule = adjust_groups(tree, slow, seed);
  ASSERT_TRUE(schedule.ok()) << replay << ": " << schedule.error().message();
  const Status proof = check_schedule(*schedule, tree);
  ASSERT_TRUE(proof.ok()) << replay << ": " << proof.error().message();
  ASSERT_EQ(*adjust_groups(tree, slow, seed), *schedule) << replay;
  // A slow worker that is not alone in its rack is at most in a pair.
  for (const Rank worker : slow.workers) {
    for (const Grouping& at : schedule->period) {
      for (const Group& group : at) {
        const bool paired = group.size() <= 2 || !std::ranges::count(group, worker);
        ASSERT_TRUE(paired) << replay;
      }
    }
  }
}

TEST(Schedule, adjust_groups__any_racks_and_bottlenecks) {
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    Prng random(seed);
    const WorkerTree tree = *WorkerTree::from_rack_sizes(worlds::random_racks(random));
    check_random(tree, random, fmt::format("racks, seed {}", seed));
    if (HasFatalFailure()) return;
  }
}

TEST(Schedule, adjust_groups__any_nested_regions_and_bottlenecks) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Prng random(seed);
    const WorkerTree tree = *WorkerTree::from_topology(worlds::random_nested(random));
    check_random(tree, random, fmt::format("nested, seed {}", seed));
    if (HasFatalFailure()) return;
  }
}

// The checker finds every change to a good schedule.
TEST(Schedule, check_schedule__finds_what_is_wrong) {
  const WorkerTree tree = racks_of({3, 3});
  const Schedule good = init_groups(tree, 1);
  const auto error_of = [&](const Schedule& bad) {
    const Status status = check_schedule(bad, tree);
    return status.ok() ? "" : status.error().message();
  };
  Schedule bad = good;
  bad.period[1][0].push_back(Rank(1));
  EXPECT_EQ(error_of(bad), "iteration 1: worker 1 is in two groups");
  bad = good;
  bad.period[2][0].pop_back();
  EXPECT_EQ(error_of(bad), "iteration 2: worker 1 is in no group");
  bad = good;
  bad.period[0] = groups({{0, 1, 3}, {2}, {4, 5}});
  EXPECT_EQ(error_of(bad),
            "iteration 0: 2 workers of rack0 average with workers outside of it; at most 1 may");
  bad.period = {groups({{0, 3}, {1, 2}, {4, 5}})};
  EXPECT_EQ(error_of(bad), "nothing of worker 0 ever reaches worker 1");
  bad = good;
  bad.workers = 5;
  EXPECT_EQ(error_of(bad), "the schedule is for 5 workers, but there are 6");
  bad = good;
  bad.period.clear();
  EXPECT_EQ(error_of(bad), "a period of 0 iterations is not allowed: 1 to 65536");
}

TEST(Schedule, bad_input__is_named) {
  const auto error_of = [](std::vector<std::vector<Rank>> racks) {
    const auto tree = WorkerTree::from_racks(racks);
    return tree.ok() ? "" : tree.error().message();
  };
  EXPECT_EQ(error_of({{Rank(0)}}), "workers: 1 are not allowed: 2 to 8192");
  EXPECT_EQ(error_of({}), "workers: 0 are not allowed: 2 to 8192");
  EXPECT_EQ(error_of({{Rank(0), Rank(1)}, {}}), "rack1: 0 workers are not allowed: 1 or more");
  EXPECT_EQ(error_of({{Rank(0), Rank(1)}, {Rank(1)}}),
            "worker 1 is named twice: in rack0 and in rack1");
  EXPECT_EQ(error_of({{Rank(0), Rank(3)}, {Rank(1)}}), "rack0: worker 3 is not allowed: 0 to 2");
  const WorkerTree tree = racks_of({2, 2});
  EXPECT_EQ(tree.find("rack2").error().message(),
            "'rack2' is not a region of the workers: rack0, rack1");
  EXPECT_EQ(adjust_groups(tree, {.regions = {0}, .workers = {}}, 1).error().message(),
            "slow region 0 is not allowed: 1 to 2");
  EXPECT_EQ(adjust_groups(tree, {.regions = {}, .workers = {Rank(4)}}, 1).error().message(),
            "slow worker 4 is not allowed: 0 to 3");
  EXPECT_FALSE(adjust_groups(tree, {.regions = {1, 1}, .workers = {}}, 1).ok());
}

TEST(Schedule, check_words__names_the_rank_that_differs) {
  const Schedule schedule = init_groups(racks_of({1, 2}), 7);
  const ScheduleWord word{
      .workers = 3, .seed = 7, .digest = schedule.digest(), .from_iteration = 100};
  std::vector<ScheduleWord> words(3, word);
  EXPECT_TRUE(check_words(words).ok());
  words[2].seed = 8;
  EXPECT_EQ(check_words(words).error().message(), "rank 2 has another seed than rank 0: 8, not 7");
  words[2] = word;
  words[1].digest ^= 1;
  EXPECT_NE(check_words(words).error().message().find("rank 1 has another schedule"),
            std::string::npos);
  words[1] = word;
  words[1].from_iteration = 50;
  EXPECT_EQ(check_words(words).error().message(),
            "rank 1 has another first iteration than rank 0: 50, not 100");
  words.pop_back();
  EXPECT_EQ(check_words(words).error().message(),
            "rank 0 has a schedule for 3 workers, but there are 2");
}

}  // namespace
}  // namespace thalweg::sync
