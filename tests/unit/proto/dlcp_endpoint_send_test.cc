// Drives the sending end by hand, and tests which transfers may be started.
#include <set>

#include "proto/dlcp_by_hand.h"

namespace thalweg::proto {
namespace {

using DlcpSendTest = DlcpEndpointTest;

TEST_F(DlcpSendTest, send__waits_for_ready_sends_stops_and_confirms) {
  const TransferSpec spec = floats(3);
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  DataBatch batch;
  EXPECT_FALSE(endpoint_.poll_data(us(0), 100, batch));
  EXPECT_TRUE(silent(endpoint_));
  EXPECT_EQ(endpoint_.next_timeout(), us(0) + spec.deadline);

  endpoint_.on_control(ready_for(spec, 9), us(5));
  ASSERT_TRUE(endpoint_.poll_data(us(5), 100, batch));
  EXPECT_EQ(batch.count, 3U);
  EXPECT_EQ(batch.transfer, 9U);
  EXPECT_EQ(batch.cookie, 7U);
  EXPECT_EQ(batch.sent_us, 5U);
  EXPECT_EQ(batch.last_length, Bytes(1400));
  EXPECT_FALSE(batch.retransmission);
  EXPECT_EQ(next_message<wire::StopMessage>(endpoint_), (wire::StopMessage{9, 0, 3, 5}));
  EXPECT_TRUE(running(endpoint_));

  endpoint_.on_control(wire::FinishMessage{9, 3}, us(50));
  EXPECT_EQ(next_message<wire::ConfirmMessage>(endpoint_), wire::ConfirmMessage{9});
  const TransferOutcome outcome = outcome_of(endpoint_);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.arrived, 3);
  EXPECT_EQ(outcome.ended, us(50));
  EXPECT_EQ(outcome.cookie, 7U);
  EXPECT_TRUE(endpoint_.idle());
  EXPECT_FALSE(endpoint_.next_timeout().has_value());
}

TEST_F(DlcpSendTest, send__ready_may_come_first_and_equal_keys_match_in_order) {
  const TransferSpec spec = floats(1);
  endpoint_.on_control(ready_for(spec, 5), us(0));
  endpoint_.on_control(ready_for(spec, 6), us(0));
  EXPECT_FALSE(endpoint_.idle());
  DataBatch batch;
  for (const std::uint32_t transfer : {5U, 6U}) {
    ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
    ASSERT_TRUE(endpoint_.poll_data(*endpoint_.next_timeout(), 1, batch));
    EXPECT_EQ(batch.transfer, transfer);
  }
}

TEST_F(DlcpSendTest, offer__only_what_was_offered_leaves_in_any_order) {
  TransferSpec spec = floats(10);
  spec.gradual = true;
  const TransferHandle handle = *endpoint_.start_send(spec, {}, us(0));
  endpoint_.offer(handle, {4, 6}, us(1));  // before the receiver is ready
  endpoint_.on_control(ready_for(spec, 1), us(2));
  EXPECT_EQ(segments_until(endpoint_, us(1000)), (std::vector<std::uint32_t>{4, 5}));
  EXPECT_TRUE(silent(endpoint_)) << "a stop would say that all was sent";
  EXPECT_EQ(endpoint_.next_timeout(), us(0) + spec.deadline);
  endpoint_.offer(handle, {0, 5}, us(1000));  // segment 4 was offered before
  EXPECT_EQ(segments_until(endpoint_, us(2000)), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  endpoint_.offer(handle, {6, 10}, us(2000));
  EXPECT_EQ(segments_until(endpoint_, us(3000)).size(), 4U);
  EXPECT_EQ(next_message<wire::StopMessage>(endpoint_).round, 0U);
  // What is asked for again needs no offer.
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{3, 1}}}, us(3000));
  EXPECT_EQ(segments_until(endpoint_, us(4000)), (std::vector<std::uint32_t>{3}));
}

TEST_F(DlcpSendTest, offer__the_receiver_may_have_enough_before_all_was_offered) {
  TransferSpec spec = floats(10, 0.2);
  spec.gradual = true;
  const TransferHandle handle = *endpoint_.start_send(spec, {}, us(0));
  endpoint_.on_control(ready_for(spec, 1), us(0));
  endpoint_.offer(handle, {0, 8}, us(1));
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 8U);
  endpoint_.on_control(wire::FinishMessage{1, 8}, us(1000));
  EXPECT_TRUE(outcome_of(endpoint_).ok());
  endpoint_.offer(handle, {8, 10}, us(1001));
  DataBatch batch;
  EXPECT_FALSE(endpoint_.poll_data(us(1001), 10, batch));
  EXPECT_EQ(endpoint_.transfers(), 0U);
}

TEST_F(DlcpSendTest, offer__what_was_never_offered_is_in_the_error) {
  TransferSpec spec = floats(10);
  spec.gradual = true;
  const TransferHandle handle = *endpoint_.start_send(spec, {}, us(0));
  endpoint_.on_control(ready_for(spec, 1), us(0));
  endpoint_.offer(handle, {0, 7}, us(1));
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 7U);
  endpoint_.on_timeout(us(0) + spec.deadline);
  EXPECT_NE(outcome_of(endpoint_).error.find("3 of 10 segments were not complete at the sender's"),
            std::string::npos);
}

TEST_F(DlcpSendTest, send__again_what_is_asked_for_and_only_that) {
  const TransferSpec spec = floats(10);
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  endpoint_.on_control(ready_for(spec, 1), us(0));
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 10U);
  EXPECT_EQ(next_message<wire::StopMessage>(endpoint_).round, 0U);

  endpoint_.on_control(wire::ResendMessage{1, 1, false, {{2, 2}}}, us(1000));
  DataBatch batch;
  EXPECT_FALSE(endpoint_.poll_data(us(1000), 100, batch)) << "the request is not complete";
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{9, 1}}}, us(1000));
  ASSERT_TRUE(endpoint_.poll_data(us(1000), 100, batch));
  ASSERT_EQ(batch.count, 3U) << "what lies apart still leaves in one batch";
  EXPECT_EQ(batch.header(0).segment, 2U);
  EXPECT_EQ(batch.header(1).segment, 3U);
  EXPECT_EQ(batch.header(2).segment, 9U);
  EXPECT_TRUE(batch.retransmission);
  const auto stop = next_message<wire::StopMessage>(endpoint_);
  EXPECT_EQ(stop.round, 1U);
  EXPECT_EQ(stop.end_sequence, 13U);
  endpoint_.on_control(wire::FinishMessage{1, 10}, us(2000));
  EXPECT_EQ(outcome_of(endpoint_).retransmissions, 3U);
}

TEST_F(DlcpSendTest, send__requests_that_make_no_sense_are_counted) {
  const TransferSpec spec = floats(10);
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  endpoint_.on_control(ready_for(spec, 1), us(0));
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{0, 1}}}, us(0));  // still sending
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 10U);
  endpoint_.on_control(wire::ResendMessage{1, 2, true, {{0, 1}}}, us(0));  // a round too many
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {}}, us(0));        // nothing
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{9, 2}}}, us(0));  // beyond the tensor
  endpoint_.on_control(wire::FinishMessage{1, 11}, us(0));                 // more than all
  endpoint_.on_control(wire::FinishMessage{1, 9}, us(0));                  // below the bound
  endpoint_.on_control(ready_for(floats(1), 1), us(0));                    // a number in use
  EXPECT_EQ(endpoint_.counters().bad_messages, 7U);
  endpoint_.on_control(wire::FinishMessage{3, 1}, us(0));
  endpoint_.on_control(wire::ResendMessage{3, 1, true, {{0, 1}}}, us(0));
  endpoint_.on_control(wire::StopMessage{3, 0, 1, 0}, us(0));
  endpoint_.on_control(wire::ConfirmMessage{3}, us(0));
  endpoint_.on_control(wire::CancelMessage{3, true, {}, ""}, us(0));
  endpoint_.on_control(wire::CancelMessage{3, false, {}, ""}, us(0));
  EXPECT_EQ(endpoint_.counters().stale_messages, 6U);
  EXPECT_TRUE(running(endpoint_));
}

TEST_F(DlcpSendTest, send__stops_at_once_when_the_receiver_has_enough) {
  const TransferSpec spec = floats(1000, 0.9);
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  endpoint_.on_control(ready_for(spec, 1), us(0));
  DataBatch batch;
  ASSERT_TRUE(endpoint_.poll_data(us(0), 100, batch));
  endpoint_.on_control(wire::FinishMessage{1, 100}, us(500));
  EXPECT_FALSE(endpoint_.poll_data(us(500), 100, batch));
  EXPECT_EQ(outcome_of(endpoint_).fraction(), 0.1);
  next_message<wire::ConfirmMessage>(endpoint_);
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpSendTest, send__with_a_bound_begins_elsewhere_each_time) {
  constexpr std::int32_t kSegments = 100;
  std::set<std::uint32_t> lasts;
  for (std::uint32_t transfer = 1; transfer <= 10; ++transfer) {
    for (const bool bounded : {false, true}) {
      const TransferSpec spec = floats(kSegments, bounded ? 0.05 : 0);
      ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
      const std::uint32_t number = 2 * transfer + (bounded ? 1 : 0);
      endpoint_.on_control(ready_for(spec, number), us(0));
      const auto sent = segments_until(endpoint_, us(1'000'000));
      EXPECT_EQ(std::set(sent.begin(), sent.end()).size(), std::size_t{kSegments});
      if (bounded) {
        lasts.insert(sent.back());
      } else {
        EXPECT_EQ(sent.back(), kSegments - 1U);
      }
      EXPECT_EQ(next_message<wire::StopMessage>(endpoint_).transfer, number);
      endpoint_.on_control(wire::FinishMessage{number, kSegments}, us(1'000'000));
      next_message<wire::ConfirmMessage>(endpoint_);
      EXPECT_TRUE(outcome_of(endpoint_).ok());
    }
  }
  EXPECT_EQ(lasts.size(), 10U);
}

TEST_F(DlcpSendTest, send__mismatch_names_both_values_at_both_ends) {
  TransferSpec ours = floats(4, 0.1);
  TransferSpec theirs = floats(5, 0.25);
  theirs.payload = Bytes(1000);
  theirs.type = DType::kFloat16;
  DlcpEndpoint receiver(named("alice"));
  ASSERT_TRUE(receiver.start_recv(theirs, us(0)).ok());
  ASSERT_TRUE(endpoint_.start_send(ours, {}, us(0)).ok());
  endpoint_.on_control(next_message<wire::ReadyMessage>(receiver), us(1));
  const std::string both =
      "tensor bytes 5600 at the sender, 3500 at the receiver; segment bytes 1400 at the sender, "
      "1000 at the receiver; element type float32 at the sender, float16 at the receiver; loss "
      "bound 0.1 at the sender, 0.25 at the receiver";
  EXPECT_EQ(outcome_of(endpoint_).error, "send to bob, transfer 42: " + both);
  receiver.on_control(next_message<wire::CancelMessage>(endpoint_), us(2));
  EXPECT_EQ(outcome_of(receiver).error, "receive from alice, transfer 42: alice ended it: " + both);
  EXPECT_TRUE(endpoint_.idle());
  EXPECT_TRUE(receiver.idle());
}

TEST_F(DlcpSendTest, start__refuses_what_is_not_allowed_and_starts_nothing) {
  const auto complaint = [&](const TransferSpec& spec) {
    const auto sent = endpoint_.start_send(spec, {}, us(0));
    const auto received = endpoint_.start_recv(spec, us(0));
    EXPECT_FALSE(sent.ok());
    EXPECT_FALSE(received.ok());
    return received.ok() ? "" : received.error().message();
  };
  TransferSpec spec = floats(1, 0.5);
  spec.type = DType::kInt32;
  EXPECT_EQ(complaint(spec),
            "a loss bound of 0.5 on elements of type int32: integers must be exact");
  spec = floats(1, 0.1);
  spec.target = *LossBound::of(0.2);
  EXPECT_EQ(complaint(spec), "a loss target of 0.2 above the loss bound of 0.1: at most the bound");
  spec = floats(1);
  spec.deadline = Duration();
  EXPECT_NE(complaint(spec).find("deadline of 0"), std::string::npos);
  spec = floats(1);
  spec.payload = Bytes(65536);
  EXPECT_NE(complaint(spec).find("at most 65535"), std::string::npos);
  spec = floats(-1);
  EXPECT_NE(complaint(spec), "");
  const std::vector<SegmentTag> tags(3);
  EXPECT_FALSE(
      endpoint_.start_send(floats(4), TagSource(std::span<const SegmentTag>(tags)), us(0)).ok());
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpSendTest, start__at_most_the_allowed_number) {
  DlcpOptions options = named("bob");
  options.max_transfers = 2;
  DlcpEndpoint small(options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(small.start_send(floats(1), {}, us(0)).ok());
    EXPECT_TRUE(small.start_recv(floats(1), us(0)).ok());
  }
  EXPECT_FALSE(small.start_send(floats(1), {}, us(0)).ok());
  EXPECT_FALSE(small.start_recv(floats(1), us(0)).ok());
  while (!silent(small)) {
  }
  // The peer may not keep more transfers waiting either.
  TransferSpec other = floats(1);
  other.key = 1;
  for (std::uint32_t i = 0; i < 3; ++i) small.on_control(ready_for(other, i), us(0));
  EXPECT_EQ(next_message<wire::CancelMessage>(small).transfer, 2U);
}

TEST_F(DlcpSendTest, poll_data__gathers_one_tag_a_batch) {
  const TransferSpec spec = floats(12);
  const SegmentTag high;
  const SegmentTag low{.priority = 6, .important = false};
  // The last `high` tag lies outside the gather window of the first batch, four times its size.
  const std::vector<SegmentTag> tags = {high, low, high, low,  low, low,
                                        low,  low, low,  high, low, high};
  endpoint_.on_control(ready_for(spec, 1), us(0));
  ASSERT_TRUE(endpoint_.start_send(spec, TagSource(std::span<const SegmentTag>(tags)), us(0)).ok());
  std::vector<std::vector<std::uint32_t>> batches;
  DataBatch batch;
  for (std::int64_t t = 0; t < 100; ++t) {
    while (endpoint_.poll_data(us(t), 3, batch)) {
      batches.emplace_back();
      for (std::uint32_t i = 0; i < batch.count; ++i) {
        batches.back().push_back(batch.header(i).segment);
        EXPECT_EQ(batch.tag, tags[batch.header(i).segment]);
        EXPECT_EQ(batch.offset(i), Bytes(1400 * std::int64_t{batch.header(i).segment}));
      }
    }
  }
  EXPECT_EQ(batches, (std::vector<std::vector<std::uint32_t>>{
                         {0, 2, 9}, {1, 3, 4}, {5, 6, 7}, {8, 10}, {11}}));
}

TEST_F(DlcpSendTest, poll_data__the_urgent_goes_before_the_rest_of_another) {
  TransferSpec slow = floats(100);
  slow.urgency = 5;
  endpoint_.on_control(ready_for(slow, 1), us(0));
  ASSERT_TRUE(endpoint_.start_send(slow, {}, us(0)).ok());
  EXPECT_EQ(segments_until(endpoint_, us(20), 10).size() % 10, 0U);
  TransferSpec urgent = floats(3);
  urgent.key = 1;
  endpoint_.on_control(ready_for(urgent, 2), us(20));
  ASSERT_TRUE(endpoint_.start_send(urgent, {}, us(20)).ok());
  DataBatch batch;
  ASSERT_TRUE(endpoint_.poll_data(*endpoint_.next_timeout(), 10, batch));
  EXPECT_EQ(batch.transfer, 2U);
  EXPECT_EQ(batch.count, 3U);
  ASSERT_TRUE(endpoint_.poll_data(*endpoint_.next_timeout(), 10, batch));
  EXPECT_EQ(batch.transfer, 1U);
}

TEST_F(DlcpSendTest, poll_data__what_is_sent_again_goes_before_the_most_urgent) {
  TransferSpec asked = floats(10);
  asked.urgency = 9;
  ASSERT_TRUE(endpoint_.start_send(asked, {}, us(0)).ok());
  endpoint_.on_control(ready_for(asked, 1), us(0));
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 10U);
  TransferSpec urgent = floats(1000);
  urgent.key = 43;
  ASSERT_TRUE(endpoint_.start_send(urgent, {}, us(1000)).ok());
  endpoint_.on_control(ready_for(urgent, 2), us(1000));
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{4, 1}}}, us(1000));
  DataBatch batch;
  ASSERT_TRUE(endpoint_.poll_data(us(1000), 100, batch));
  EXPECT_EQ(batch.transfer, 1U);
  EXPECT_EQ(batch.count, 1U);
  ASSERT_TRUE(endpoint_.poll_data(*endpoint_.next_timeout(), 100, batch));
  EXPECT_EQ(batch.transfer, 2U);
}

TEST_F(DlcpSendTest, stop__names_the_least_urgent_queue_of_its_round) {
  const TransferSpec spec = floats(4);
  const TagSource tags(
      [](SegmentIndex i) { return SegmentTag{static_cast<std::uint8_t>(i.value() == 1 ? 6 : 2)}; });
  ASSERT_TRUE(endpoint_.start_send(spec, tags, us(0)).ok());
  endpoint_.on_control(ready_for(spec, 1), us(0));
  EXPECT_EQ(segments_until(endpoint_, us(1000)).size(), 4U);
  EXPECT_EQ(next_message<wire::StopMessage>(endpoint_).queue, 6);
  endpoint_.on_control(wire::ResendMessage{1, 1, true, {{2, 2}}}, us(1000));
  EXPECT_EQ(segments_until(endpoint_, us(2000)).size(), 2U);
  EXPECT_EQ(next_message<wire::StopMessage>(endpoint_).queue, 2);
}

// Short transfers leave as one long transfer would: each whole, in the order of their start,
// without a gap.
TEST_F(DlcpSendTest, poll_data__short_transfers_follow_each_other) {
  constexpr std::uint32_t kTransfers = 20;
  constexpr std::uint32_t kSegments = 5;
  DlcpOptions options = named("bob");
  options.burst_segments = kSegments;
  DlcpEndpoint one(options);
  DlcpEndpoint many(options);
  const TransferSpec whole = floats(kTransfers * kSegments);
  ASSERT_TRUE(one.start_send(whole, {}, us(0)).ok());
  one.on_control(ready_for(whole, 0), us(0));
  for (std::uint32_t i = 0; i < kTransfers; ++i) {
    TransferSpec part = floats(kSegments);
    part.key = i;
    ASSERT_TRUE(many.start_send(part, {}, us(0)).ok());
  }
  for (std::uint32_t i = kTransfers; i-- > 0;) {
    TransferSpec part = floats(kSegments);
    part.key = i;
    many.on_control(ready_for(part, i), us(0));
  }
  DataBatch long_one;
  DataBatch batch;
  for (std::uint32_t i = 0; i < kTransfers; ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(many.next_timeout(), one.next_timeout());
    const Time now = *one.next_timeout();
    ASSERT_TRUE(one.poll_data(now, kSegments, long_one));
    ASSERT_TRUE(many.poll_data(now, kSegments, batch));
    EXPECT_EQ(batch.transfer, i);
    EXPECT_EQ(batch.count, kSegments);
    EXPECT_EQ(batch.first_sequence, long_one.first_sequence);
  }
  EXPECT_FALSE(many.poll_data(*many.next_timeout(), kSegments, batch));
}

TEST_F(DlcpSendTest, poll_data__paced_at_the_line_rate) {
  const TransferSpec spec = floats(10'000);
  endpoint_.on_control(ready_for(spec, 1), us(0));
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  // 10 Gb/s with 1502 bytes per packet: 832 packets per millisecond, and up to two bursts of 44.
  const std::size_t first = segments_until(endpoint_, us(1000)).size();
  EXPECT_GE(first, 832U);
  EXPECT_LE(first, 832U + 88);
  EXPECT_NEAR(static_cast<double>(segments_until(endpoint_, us(5000)).size()), 4 * 832, 44);
}

}  // namespace
}  // namespace thalweg::proto
