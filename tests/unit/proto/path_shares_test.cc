#include "proto/dlcp/path_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"
#include "wire/wire.h"

namespace thalweg::proto {
namespace {

// A sender and its reports, one every 200 µs. Each path delivers the fraction `part` of the packets
// it is given, and at most `most` packets per report.
class PathSharesTest : public testing::Test {
 protected:
  struct Path {
    double part = 1;
    double most = 1e9;
    std::uint16_t delay_us = 0;
  };

  explicit PathSharesTest() { shares_.set_count(4, now_); }

  // Sends packets and makes a report of them. Returns how many packets each path was given.
  std::vector<std::uint32_t> report(std::uint32_t packets) {
    std::vector<std::uint32_t> sent(paths_.size());
    wire::ReportMessage report;
    report.first_sent_us = wire::wire_clock(now_);
    for (std::uint32_t i = 0; i < packets; ++i) ++sent[shares_.take(1, now_)];
    now_ = now_ + Duration::microseconds(200);
    report.last_sent_us = wire::wire_clock(now_);
    report.packets_sent = packets;
    report.paths = static_cast<std::uint8_t>(paths_.size());
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      report.path_packets[p] =
          static_cast<std::uint32_t>(std::min(sent[p] * paths_[p].part, paths_[p].most));
      report.packets_received += report.path_packets[p];
      report.path_delay_us[p] = paths_[p].delay_us;
    }
    shares_.on_report(report, now_);
    return sent;
  }
  void reports(int count, std::uint32_t packets) {
    for (int i = 0; i < count; ++i) report(packets);
  }

  Time now_;
  PathOptions options_;
  PathShares shares_{options_};
  std::vector<Path> paths_{4};
};

TEST_F(PathSharesTest, take__even_shares_go_round) {
  for (std::uint32_t i = 0; i < 12; ++i) EXPECT_EQ(shares_.take(1, now_), i % 4);
  // A batch counts as many packets as it holds.
  EXPECT_EQ(shares_.take(3, now_), 0U);
  for (const std::uint32_t next : {1U, 2U, 3U, 1U, 2U, 3U, 1U, 2U, 3U}) {
    EXPECT_EQ(shares_.take(1, now_), next);
  }
}

TEST_F(PathSharesTest, on_report__nothing_by_one_path__it_is_left_out_and_tried_again) {
  paths_[2].part = 0;
  reports(2, 400);
  EXPECT_EQ(shares_.share(2), 0);
  EXPECT_DOUBLE_EQ(shares_.share(0), 1.0 / 3);
  std::uint32_t wasted = 0;
  for (int i = 0; i < 490; ++i) wasted += report(400)[2];  // 98 ms
  EXPECT_EQ(wasted, 0U);
  // The path is tried with few packets, and left out again.
  for (int i = 0; i < 20; ++i) wasted += report(400)[2];
  EXPECT_GT(wasted, 0U);
  EXPECT_LT(wasted, 40U);
  EXPECT_EQ(shares_.share(2), 0);
  paths_[2].part = 1;
  reports(600, 400);
  EXPECT_DOUBLE_EQ(shares_.share(2), 0.25);
}

TEST_F(PathSharesTest, on_report__slow_path__gets_about_what_it_carries) {
  paths_[1].most = 25;
  reports(20, 400);
  double sent = 0;
  double most = 0;
  for (int i = 0; i < 100; ++i) {
    const double given = report(400)[1];
    sent += given;
    most = std::max(most, given);
  }
  EXPECT_GT(sent / 100, 0.8 * 25);
  EXPECT_LT(sent / 100, 1.1 * 25);
  EXPECT_LT(most, 1.3 * 25);
}

TEST_F(PathSharesTest, on_report__packets_wait_on_one_path__it_is_given_less_until_they_do_not) {
  paths_[1].delay_us = 1500;
  reports(100, 40);  // 20 ms
  EXPECT_LT(shares_.share(1), 0.24);
  EXPECT_GT(shares_.share(1), 0.1);
  EXPECT_NEAR(shares_.share(0), shares_.share(2), 1e-9);
  paths_[1].delay_us = 0;
  reports(20'000, 40);
  EXPECT_NEAR(shares_.share(1), 0.25, 0.01);
}

TEST_F(PathSharesTest, on_report__waits_that_all_share__change_nothing) {
  for (Path& path : paths_) path.delay_us = 60'000;
  reports(100, 40);
  for (std::uint32_t p = 0; p < 4; ++p) EXPECT_DOUBLE_EQ(shares_.share(p), 0.25);
}

TEST_F(PathSharesTest, on_report__delays_not_known__change_nothing) {
  for (Path& path : paths_) path.delay_us = wire::kNoPathDelay;
  paths_[2].delay_us = 50;
  reports(100, 40);
  for (std::uint32_t p = 0; p < 4; ++p) EXPECT_DOUBLE_EQ(shares_.share(p), 0.25);
}

// Packets are lost where all paths have joined, at the receiver's own link.
TEST_F(PathSharesTest, on_report__loss_that_all_share__changes_nothing) {
  for (Path& path : paths_) path.part = 0.4;
  reports(50, 400);
  for (std::uint32_t p = 0; p < 4; ++p) EXPECT_DOUBLE_EQ(shares_.share(p), 0.25);
}

TEST_F(PathSharesTest, on_report__few_packets__wait_for_more) {
  paths_[3].part = 0;
  report(28);
  EXPECT_DOUBLE_EQ(shares_.share(3), 0.25);
  report(28);
  EXPECT_EQ(shares_.share(3), 0);
}

TEST_F(PathSharesTest, on_report__of_what_left_before_the_change__is_not_believed) {
  wire::ReportMessage old;
  old.first_sent_us = wire::wire_clock(now_);
  paths_[0].part = 0;
  report(400);
  ASSERT_EQ(shares_.share(0), 0);
  old.last_sent_us = wire::wire_clock(now_);
  old.packets_sent = 400;
  old.packets_received = 100;
  old.paths = 2;
  old.path_packets[1] = 100;  // and nothing on the other paths
  shares_.on_report(old, now_);
  for (std::uint32_t p = 1; p < 4; ++p) EXPECT_DOUBLE_EQ(shares_.share(p), 1.0 / 3);
}

TEST_F(PathSharesTest, on_report__all_but_the_first_are_dead__the_first_has_everything) {
  wire::ReportMessage report;  // its receiver has never seen another path
  report.packets_sent = 400;
  report.packets_received = 100;
  report.first_sent_us = report.last_sent_us = wire::wire_clock(now_);
  shares_.on_report(report, now_);
  EXPECT_DOUBLE_EQ(shares_.share(0), 1);
}

// Some path is in use, whatever the reports say.
TEST_F(PathSharesTest, on_report__nonsense__shares_still_add_up) {
  Prng prng(5);
  for (int i = 0; i < 20'000; ++i) {
    wire::ReportMessage report;
    report.first_sent_us = wire::wire_clock(now_);
    report.packets_sent = static_cast<std::uint32_t>(prng.next() >> prng.below(64));
    report.packets_received = static_cast<std::uint32_t>(prng.next() >> prng.below(64));
    report.paths = static_cast<std::uint8_t>(prng.below(wire::kMaxReportPaths + 1));
    for (std::uint32_t& packets : report.path_packets) {
      packets = static_cast<std::uint32_t>(prng.next() >> prng.below(64));
    }
    for (std::uint16_t& delay_us : report.path_delay_us) {
      delay_us = static_cast<std::uint16_t>(prng.next() >> prng.below(64));
    }
    shares_.on_report(report, now_);
    now_ = now_ + Duration::microseconds(static_cast<std::int64_t>(prng.below(30'000)));
    double sum = 0;
    for (std::uint32_t p = 0; p < 4; ++p) sum += shares_.share(p);
    ASSERT_NEAR(sum, 1, 1e-9);
    ASSERT_GT(shares_.share(shares_.take(1, now_)), 0);
  }
}

}  // namespace
}  // namespace thalweg::proto
