// The small parts of DLCP: bounds, options, tags, queues.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/prng.h"
#include "proto/dlcp/loss_bound.h"
#include "proto/dlcp/options.h"
#include "proto/dlcp/transfer.h"
#include "proto/fifo.h"

namespace thalweg::proto {
namespace {

TEST(LossBound, of__nearest_billionth_and_nothing_outside) {
  EXPECT_EQ(LossBound::of(0)->ppb(), 0U);
  EXPECT_EQ(LossBound::of(0.29)->ppb(), 290'000'000U);
  EXPECT_EQ(LossBound::of(0.1)->fraction(), 0.1);
  EXPECT_EQ(LossBound::of(1e-9)->ppb(), 1U);
  for (const double bad : {-1e-9, 1.0, 1.5, 1 - 1e-12, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const auto bound = LossBound::of(bad);
    ASSERT_FALSE(bound.ok()) << bad;
    EXPECT_NE(bound.error().message().find("at least 0 and below 1"), std::string::npos);
  }
}

TEST(LossBound, allowed_missing__floor_of_the_exact_product) {
  EXPECT_EQ(LossBound::of(0.29)->allowed_missing(100), 29);
  EXPECT_EQ(LossBound::of(0.1)->allowed_missing(9), 0);
  EXPECT_EQ(LossBound::of(0.1)->allowed_missing(10), 1);
  EXPECT_EQ(LossBound::of(0.1)->allowed_missing(19), 1);
  EXPECT_EQ(LossBound().allowed_missing(std::numeric_limits<std::int32_t>::max()), 0);
  EXPECT_EQ(LossBound::parts_per_billion(999'999'999).allowed_missing(0), 0);
}

TEST(LossBound, allowed_missing__never_all_and_never_above_the_bound) {
  Prng prng(4);
  for (int i = 0; i < 100'000; ++i) {
    SCOPED_TRACE(i);
    const auto ppb = static_cast<std::uint32_t>(prng.below(LossBound::kBillion));
    const auto count = static_cast<std::int32_t>(1 + prng.below(prng.chance(0.5) ? 50 : 1U << 30));
    const std::int64_t missing = LossBound::parts_per_billion(ppb).allowed_missing(count);
    ASSERT_LT(missing, count);
    // missing/count <= ppb/10^9 < (missing+1)/count, in whole numbers.
    const Int128 product = static_cast<Int128>(ppb) * count;
    ASSERT_TRUE(static_cast<Int128>(missing) * LossBound::kBillion <= product);
    ASSERT_TRUE(static_cast<Int128>(missing + 1) * LossBound::kBillion > product);
  }
}

template <class Change>
std::string complaint(Change change) {
  DlcpOptions options;
  change(options);
  const Status status = options.validate();
  return status.ok() ? "" : status.error().message();
}

TEST(DlcpOptions, validate__names_field_value_and_what_is_allowed) {
  EXPECT_EQ(complaint([](DlcpOptions&) {}), "");
  EXPECT_EQ(complaint([](DlcpOptions& o) { o.rate.congestion_factor = 0.5; }),
            "rate.congestion_factor = 0.5: must be at least 1");
  EXPECT_EQ(complaint([](DlcpOptions& o) { o.rate.decrease_factor = 1; }),
            "rate.decrease_factor = 1: must be between 0 and 1");
  EXPECT_EQ(complaint([](DlcpOptions& o) { o.grace.most = Duration::microseconds(1); }),
            "grace.most = 1us: must be at least grace.least and grace.initial, at most 1h");
  EXPECT_EQ(complaint([](DlcpOptions& o) { o.burst_segments = 0; }),
            "burst_segments = 0: must be at least 1");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.line_rate = Bandwidth(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.report_period = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.least_report_packets = 0; }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.increase_step = std::nan(""); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.least_rate = 0; }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.rate.capacity_headroom = HUGE_VAL; }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.grace.least = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.grace.initial = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.grace.memory = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.patience.factor = -1; }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.patience.most = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.patience.initial_round_trip = Duration(); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.packet_overhead = Bytes(-1); }), "");
  EXPECT_NE(complaint([](DlcpOptions& o) { o.max_transfers = 0; }), "");
}

TEST(TagSource, tag__same_each_or_computed) {
  const SegmentTag low{.priority = 7, .important = false};
  EXPECT_EQ(TagSource(low).tag(SegmentIndex(12)), low);
  EXPECT_TRUE(TagSource(low).fits(1000));
  const std::vector<SegmentTag> tags = {low, SegmentTag()};
  const TagSource each{std::span<const SegmentTag>(tags)};
  EXPECT_EQ(each.tag(SegmentIndex(0)), low);
  EXPECT_EQ(each.tag(SegmentIndex(1)), SegmentTag());
  EXPECT_TRUE(each.fits(2));
  EXPECT_FALSE(each.fits(3));
  const TagSource computed(
      [](SegmentIndex i) { return SegmentTag{static_cast<std::uint8_t>(i.value() % 8), true}; });
  EXPECT_EQ(computed.tag(SegmentIndex(11)).priority, 3);
}

TEST(DataBatch, header__one_a_segment) {
  DataBatch batch;
  batch.transfer = 9;
  batch.segments = {5, 6, 9};
  batch.count = 3;
  batch.first_offset = Bytes(5 * 1400);
  batch.segment_length = Bytes(1400);
  batch.last_length = Bytes(10);
  batch.first_sequence = 100;
  batch.sent_us = 77;
  batch.tag = {.priority = 2, .important = false};
  batch.retransmission = true;
  const wire::DataHeader second = batch.header(1);
  EXPECT_EQ(second.segment, 6U);
  EXPECT_EQ(second.sequence, 101U);
  EXPECT_EQ(second.length, 1400);
  EXPECT_EQ(second.transfer, 9U);
  EXPECT_EQ(second.sent_us, 77U);
  EXPECT_EQ(second.tag, batch.tag);
  EXPECT_TRUE(second.retransmission);
  EXPECT_EQ(batch.header(2).length, 10);
  EXPECT_EQ(batch.header(2).segment, 9U);
  EXPECT_EQ(batch.offset(2), Bytes(9 * 1400));
}

TEST(Fifo, push_pop__in_order_through_growth) {
  Prng prng(5);
  Fifo<std::uint64_t> fifo;
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (prng.chance(0.5)) {
      fifo.push(pushed++);
    } else if (!fifo.empty()) {
      ASSERT_EQ(fifo.pop(), popped++);
    }
    ASSERT_EQ(fifo.size(), pushed - popped);
    ASSERT_EQ(fifo.empty(), pushed == popped);
  }
}

}  // namespace
}  // namespace thalweg::proto
