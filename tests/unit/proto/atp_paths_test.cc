#include <gtest/gtest.h>

#include "proto/atp/paths.h"

namespace thalweg::proto {
namespace {

Time at_ms(std::int64_t ms) { return Time() + Duration::milliseconds(ms); }

// A path whose switch is gone: servers answered, and the switch did not.
AtpWorkerPath path_without_its_switch() {
  AtpWorkerPath path({}, true);
  path.on_start(at_ms(0));
  for (int i = 0; i < 8; ++i) path.on_answer(false, at_ms(100));
  return path;
}

TEST(AtpWorkerPath, gone__after_silence_and_answers_of_servers) {
  AtpWorkerPath path({}, true);
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

TEST(AtpWorkerPath, probes__never_without_a_switch) {
  const AtpWorkerPath path({}, false);
  EXPECT_TRUE(path.direct(false, at_ms(0)));
  EXPECT_FALSE(path.probes(false, 0));
}

}  // namespace
}  // namespace thalweg::proto
