// Random schedules: the rules of dlcp_world.h hold in every one, and transfers that can succeed do.
// If nothing is lost, hardly anything is sent twice (how late a packet may arrive is an estimate).
//
// THALWEG_SCHEDULES=1000000 THALWEG_FIRST_SEED=100000 proto_test --gtest_filter='DlcpProperty.*'
// runs more; THALWEG_SCHEDULES=1 with the seed of a failure replays it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "proto/dlcp_world.h"
#include "sanitized.h"

namespace thalweg::proto {
namespace {

constexpr std::uint64_t kSchedules = kUnderSanitizer ? 2'000 : 100'000;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Tally {
  std::uint64_t succeeded = 0;  // transfers
  std::uint64_t lossless = 0;   // schedules
  std::uint64_t needless = 0;   // lossless schedules with a retransmission
};

// Returns what is wrong with this schedule; empty if nothing is.
std::string run_schedule(std::uint64_t seed, Tally& tally) {
  const Schedule schedule = random_schedule(seed);
  World world(schedule.options);
  std::string broken = world.run();
  if (!broken.empty()) return broken;
  const std::uint64_t retransmitted = world.endpoint(0).counters().segments_retransmitted +
                                      world.endpoint(1).counters().segments_retransmitted;
  if (schedule.lossless) ++tally.lossless;
  if (schedule.lossless && retransmitted > 0) ++tally.needless;
  for (const TransferResult& result : world.results()) {
    if (result.received && result.received->ok()) ++tally.succeeded;
    if (!schedule.fair) continue;
    if (!result.sent->ok()) return "could have been sent: " + result.sent->error;
    if (!result.received->ok()) return "could have been received: " + result.received->error;
  }
  return {};
}

TEST(DlcpProperty, random_schedules__keep_every_rule) {
  const std::uint64_t first = from_environment("THALWEG_FIRST_SEED", 0);
  const std::uint64_t count = from_environment("THALWEG_SCHEDULES", kSchedules);
  Tally tally;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::string broken = run_schedule(seed, tally);
    ASSERT_EQ(broken, "") << "replay: THALWEG_FIRST_SEED=" << seed << " THALWEG_SCHEDULES=1";
  }
  if (count < 1000) return;
  EXPECT_GT(tally.succeeded, count / 2);
  EXPECT_GT(tally.lossless, count / 10);
  EXPECT_LE(tally.needless, tally.lossless / 5'000);
}

TEST(DlcpProperty, random_schedules__same_seed_same_run) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World first(random_schedule(seed).options);
    World second(random_schedule(seed).options);
    first.keep_sent();
    second.keep_sent();
    ASSERT_EQ(first.run(), "");
    ASSERT_EQ(second.run(), "");
    ASSERT_EQ(first.now(), second.now());
    ASSERT_EQ(first.sent().size(), second.sent().size());
    for (std::size_t i = 0; i < first.sent().size(); ++i) {
      ASSERT_EQ(first.sent()[i].at, second.sent()[i].at);
      ASSERT_EQ(first.sent()[i].header, second.sent()[i].header);
    }
  }
}

}  // namespace
}  // namespace thalweg::proto
