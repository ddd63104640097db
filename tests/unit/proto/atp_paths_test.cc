#include <gtest/gtest.h>

#include <vector>

#include "proto/atp/paths.h"

namespace thalweg::proto {
namespace {

Time at_ms(std::int64_t ms) { return Time() + Duration::milliseconds(ms); }

// A path whose switch is gone: servers answered, and the switch did not.
AtpWorkerPath path_without_its_switch(std::uint32_t servers = 1) {
  AtpWorkerPath path({}, true, servers);
  path.on_start(at_ms(0));
  for (int i = 0; i < 8; ++i) path.on_answer(false, at_ms(100));
  return path;
}

TEST(AtpWorkerPath, gone__after_silence_and_answers_of_servers) {
  AtpWorkerPath path({}, true, 1);
  path.on_start(at_ms(0));
  for (int i = 0; i < 20; ++i) path.on_answer(false, at_ms(99));
  EXPECT_FALSE(path.gone());
  EXPECT_FALSE(path.direct(true, at_ms(99)));
  EXPECT_TRUE(path.direct(true, at_ms(100)));
  EXPECT_FALSE(path.direct(false, at_ms(100)));
  for (int i = 0; i < 7; ++i) path.on_answer(false, at_ms(100));
  EXPECT_FALSE(path.gone());
  path.on_answer(false, at_ms(100));
  EXPECT_TRUE(path.direct(false, at_ms(100)));
}

TEST(AtpWorkerPath, probes__some_new_packets_while_the_switch_is_gone) {
  AtpWorkerPath path = path_without_its_switch();
  EXPECT_TRUE(path.probes(false, 128));
  EXPECT_FALSE(path.probes(false, 129));
  EXPECT_FALSE(path.probes(true, 128));
  path.on_answer(true, at_ms(200));
  EXPECT_FALSE(path.gone());
  EXPECT_FALSE(path.probes(false, 128));
}

// A worker that is a server sends nothing to itself, so probes are of all servers.
TEST(AtpWorkerPath, probes__one_in_so_many_of_each_server) {
  const AtpWorkerPath path = path_without_its_switch(4);
  std::vector<std::uint64_t> probed;
  for (std::uint64_t sequence = 0; sequence < 512; ++sequence) {
    if (path.probes(false, sequence)) probed.push_back(sequence);
  }
  EXPECT_EQ(probed, (std::vector<std::uint64_t>{0, 1, 2, 3, 256, 257, 258, 259}));
}

TEST(AtpWorkerPath, probes__never_without_a_switch) {
  const AtpWorkerPath path({}, false, 1);
  EXPECT_TRUE(path.direct(false, at_ms(0)));
  EXPECT_FALSE(path.probes(false, 0));
}

TEST(AtpServerPath, direct__each_worker_by_the_way_its_packets_took) {
  const std::vector<std::uint8_t> groups{2, 32};
  AtpServerPath path(AtpWorkerSet::all(groups), true);
  wire::AtpHeader all;
  all.group_count = 2;
  all.groups = 3;
  const AtpWorkerSet everyone = AtpWorkerSet::of(all, groups);
  EXPECT_EQ(everyone.count(), 34);
  EXPECT_TRUE(path.direct(everyone).empty());
  path.on_gradient(false, AtpWorkerSet::one(1, 31));
  path.on_gradient(false, AtpWorkerSet::one(0, 1));
  EXPECT_EQ(path.direct(everyone), AtpWorkerSet::one(1, 31) | AtpWorkerSet::one(0, 1));
  // A sum of the second group has come by the switch.
  all.groups = 2;
  path.on_gradient(true, AtpWorkerSet::of(all, groups));
  EXPECT_EQ(path.direct(everyone), AtpWorkerSet::one(0, 1));
  EXPECT_TRUE(path.direct(AtpWorkerSet::one(0, 0)).empty());
  // Those that the job does not have are none of it.
  path.on_gradient(false, AtpWorkerSet::one(5, 0));
  EXPECT_EQ(path.direct(AtpWorkerSet::one(5, 0)), AtpWorkerSet());
}

}  // namespace
}  // namespace thalweg::proto
