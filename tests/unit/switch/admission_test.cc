#include "switch/queueing/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace thalweg::switches {
namespace {

constexpr bool kCapable = true;
constexpr bool kNotCapable = false;

TEST(AdmissionPolicy, decide__default_accepts_everything) {
  const AdmissionPolicy policy;
  EXPECT_EQ(policy.decide({1U << 30, 1U << 30, kNoLimit}, 3, 1500, kCapable), Verdict::kAccept);
  EXPECT_EQ(policy.decide({1U << 30, 1U << 30, kNoLimit}, 3, 1500, kNotCapable), Verdict::kAccept);
}

TEST(AdmissionPolicy, decide__table) {
  struct Row {
    const char* what;
    AdmissionPolicy::Occupancy occupancy;
    std::uint8_t queue;
    bool capable;
    Verdict verdict;
  };
  // K = 3000 bytes per port; T = 1000, d = 0.5: thresholds 1000, 1500, 2000, … for queues 1, 2, 3,
  // …
  const std::vector<Row> rows{
      {"at the buffer's limit", {8500, 0, 10000}, 0, kCapable, Verdict::kAcceptMarked},
      {"a byte over the limit", {8501, 0, 10000}, 0, kCapable, Verdict::kDropPortFull},
      {"full comes before selective", {9000, 9000, 10000}, 1, kNotCapable, Verdict::kDropPortFull},
      {"at K", {3000, 0, 10000}, 0, kCapable, Verdict::kAccept},
      {"above K", {3001, 0, 10000}, 0, kCapable, Verdict::kAcceptMarked},
      {"above K, not capable", {3001, 0, 10000}, 0, kNotCapable, Verdict::kAccept},
      {"at T", {1000, 1000, 10000}, 1, kNotCapable, Verdict::kAccept},
      {"above T", {1001, 1001, 10000}, 1, kNotCapable, Verdict::kDropSelective},
      {"above T, capable", {1001, 1001, 10000}, 1, kCapable, Verdict::kAcceptMarked},
      {"queue 2 has more", {1500, 1500, 10000}, 2, kNotCapable, Verdict::kAccept},
      {"above that", {1501, 1501, 10000}, 2, kNotCapable, Verdict::kDropSelective},
      {"queue 7: T(1 + 6d)", {4000, 4000, 10000}, 7, kNotCapable, Verdict::kAccept},
      {"above that", {4001, 4001, 10000}, 7, kNotCapable, Verdict::kDropSelective},
      {"other queues do not count", {5000, 900, 10000}, 1, kNotCapable, Verdict::kAccept},
      {"control is exempt", {2500, 2500, 10000}, 0, kNotCapable, Verdict::kAccept},
  };
  AdmissionPolicy policy;
  policy.mark_above(Bytes(3000), true);
  policy.drop_selectively_above(Bytes(1000), 0.5);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    EXPECT_STREQ(name_of(policy.decide(row.occupancy, row.queue, 1500, row.capable)),
                 name_of(row.verdict));
  }
}

TEST(AdmissionPolicy, decide__thresholds_and_limits_one_by_one) {
  std::vector<Bytes> thresholds;
  std::vector<Bytes> limits;
  for (const std::int64_t q : {1, 2, 3, 4, 5, 6, 7}) {
    thresholds.emplace_back(1000 * q * q);
    limits.emplace_back(3000 * q * q);
  }
  AdmissionPolicy policy;
  policy.drop_selectively_above(thresholds);
  policy.limit_queues(limits);
  const auto verdict = [&](std::uint64_t waiting, std::uint8_t queue, bool capable) {
    return policy.decide({waiting, waiting, kNoLimit}, queue, 1500, capable);
  };
  EXPECT_EQ(verdict(1000, 1, kNotCapable), Verdict::kAccept);
  EXPECT_EQ(verdict(1001, 1, kNotCapable), Verdict::kDropSelective);
  EXPECT_EQ(verdict(3000, 1, kCapable), Verdict::kAcceptMarked);
  EXPECT_EQ(verdict(3001, 1, kCapable), Verdict::kDropQueueFull);
  EXPECT_EQ(verdict(3001, 1, kNotCapable), Verdict::kDropSelective);
  EXPECT_EQ(verdict(9000, 3, kNotCapable), Verdict::kAccept);
  EXPECT_EQ(verdict(9001, 3, kNotCapable), Verdict::kDropSelective);
  EXPECT_EQ(verdict(27'000, 3, kCapable), Verdict::kAcceptMarked);
  EXPECT_EQ(verdict(27'001, 3, kCapable), Verdict::kDropQueueFull);
  EXPECT_EQ(verdict(1'000'000, 0, kNotCapable), Verdict::kAccept);  // control
}

TEST(AdmissionPolicy, mark_above__per_queue_looks_at_the_queue) {
  AdmissionPolicy policy;
  policy.mark_above(Bytes(3000), false);
  EXPECT_EQ(policy.decide({9000, 3000, kNoLimit}, 4, 1500, kCapable), Verdict::kAccept);
  EXPECT_EQ(policy.decide({9000, 3001, kNoLimit}, 4, 1500, kCapable), Verdict::kAcceptMarked);
}

TEST(AdmissionPolicy, drop_selectively_above__zero_is_off) {
  AdmissionPolicy policy;
  policy.drop_selectively_above(Bytes(1000), 1);
  EXPECT_EQ(policy.selective_threshold(1), 1000U);
  EXPECT_EQ(policy.selective_threshold(7), 7000U);
  policy.drop_selectively_above(Bytes(0), 1);
  EXPECT_EQ(policy.selective_threshold(1), kNoLimit);
}

}  // namespace
}  // namespace thalweg::switches
