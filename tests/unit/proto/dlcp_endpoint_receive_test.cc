// Drives the receiving end by hand, and tests how transfers fail.
#include "proto/dlcp_by_hand.h"

namespace thalweg::proto {
namespace {

TEST_F(DlcpEndpointTest, receive__finishes_at_the_bound_and_drops_what_comes_later) {
  ASSERT_TRUE(endpoint_.start_recv(floats(10, 0.25), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  for (std::uint32_t i = 0; i < 7; ++i) place(ready.transfer, i + 1, us(100 + i));
  EXPECT_TRUE(running(endpoint_));
  EXPECT_EQ(endpoint_.on_data(data(ready.transfer, 1, 50, 80), true, us(108)).verdict,
            Placement::Verdict::kDuplicate);
  place(ready.transfer, 9, us(110));
  const TransferOutcome outcome = outcome_of(endpoint_);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.arrived, 8);
  EXPECT_EQ(outcome.ended, us(110));
  EXPECT_EQ(outcome.missing, (std::vector<Bitmap::Run>{{0, 1}, {8, 9}}));
  EXPECT_EQ(next_message<wire::FinishMessage>(endpoint_), (wire::FinishMessage{ready.transfer, 8}));

  EXPECT_EQ(endpoint_.on_data(data(ready.transfer, 0, 51, 90), false, us(120)).verdict,
            Placement::Verdict::kLate);
  endpoint_.on_control(wire::StopMessage{ready.transfer, 0, 60, 100}, us(121));
  EXPECT_FALSE(endpoint_.idle());
  endpoint_.on_control(wire::ConfirmMessage{ready.transfer}, us(150));
  EXPECT_EQ(endpoint_.on_data(data(ready.transfer, 8, 52, 90), false, us(160)).verdict,
            Placement::Verdict::kStale);
  EXPECT_TRUE(endpoint_.idle());
  EXPECT_FALSE(endpoint_.next_timeout().has_value());
  const DlcpCounters& counters = endpoint_.counters();
  EXPECT_EQ(counters.segments_placed, 8U);
  EXPECT_EQ(counters.duplicate, 1U);
  EXPECT_EQ(counters.late, 1U);
  EXPECT_EQ(counters.stale, 1U);
  EXPECT_EQ(counters.marks, 1U);
}

TEST_F(DlcpEndpointTest, receive__bad_segments_are_counted_and_not_placed) {
  ASSERT_TRUE(endpoint_.start_recv(floats(2), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  wire::DataHeader header = data(ready.transfer, 2, 0, 0);
  EXPECT_EQ(endpoint_.on_data(header, false, us(1)).verdict, Placement::Verdict::kBadSegment);
  header.segment = 1;
  header.length = 1399;
  EXPECT_EQ(endpoint_.on_data(header, false, us(1)).verdict, Placement::Verdict::kBadLength);
  header.transfer = ready.transfer + 8;  // the same slot
  EXPECT_EQ(endpoint_.on_data(header, false, us(1)).verdict, Placement::Verdict::kStale);
  EXPECT_EQ(endpoint_.counters().bad_segment + endpoint_.counters().bad_length, 2U);
}

TEST_F(DlcpEndpointTest, receive__asks_after_the_grace_for_exactly_what_is_missing) {
  ASSERT_TRUE(endpoint_.start_recv(floats(40), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  for (std::uint32_t i = 0; i < 40; ++i) {
    if (i != 3 && i != 4 && i != 20) place(ready.transfer, i, us(100 + i));
  }
  EXPECT_TRUE(silent(endpoint_));
  endpoint_.on_control(wire::StopMessage{ready.transfer, 0, 40, 129}, us(140));
  EXPECT_TRUE(silent(endpoint_)) << "no request before the grace";
  const Time due = *endpoint_.next_timeout();
  EXPECT_EQ(due, us(140 + 20 - 1)) << "the last packet is a witness, here since 139";
  endpoint_.on_timeout(due);
  EXPECT_EQ(next_message<wire::ResendMessage>(endpoint_),
            (wire::ResendMessage{ready.transfer, 1, true, {{3, 2}, {20, 1}}}));
  endpoint_.on_control(wire::StopMessage{ready.transfer, 0, 40, 129}, us(170));
  EXPECT_EQ(endpoint_.counters().bad_messages, 1U) << "a stop of the round before";
}

TEST_F(DlcpEndpointTest, receive__a_long_request_takes_several_messages) {
  ASSERT_TRUE(endpoint_.start_recv(floats(1200), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  for (std::uint32_t i = 0; i < 1200; i += 2) place(ready.transfer, i, us(100));
  endpoint_.on_control(wire::StopMessage{ready.transfer, 0, 1200, 90}, us(110));
  endpoint_.on_timeout(*endpoint_.next_timeout());
  std::vector<std::size_t> sizes;
  std::uint32_t expected = 1;
  for (bool last = false; !last;) {
    const auto message = next_message<wire::ResendMessage>(endpoint_);
    last = message.last || message.ranges.empty();
    sizes.push_back(message.ranges.size());
    for (const wire::SegmentRange& range : message.ranges) {
      EXPECT_EQ(range, (wire::SegmentRange{expected, 1}));
      expected += 2;
    }
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{256, 256, 88}));
}

TEST_F(DlcpEndpointTest, receive__numbers_are_not_used_again) {
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 300; ++i) {
    const auto handle = endpoint_.start_recv(floats(1), us(0));
    ASSERT_TRUE(handle.ok());
    const auto ready = next_message<wire::ReadyMessage>(endpoint_);
    for (const std::uint32_t used : numbers) ASSERT_NE(ready.transfer, used);
    numbers.push_back(ready.transfer);
    // Few stay in flight, so that the numbers of the others wrap around between them.
    if (i % 60 != 0) {
      endpoint_.cancel(*handle, "a test", us(0));
      next_message<wire::CancelMessage>(endpoint_);
    }
  }
  EXPECT_EQ(endpoint_.transfers(), 5U);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto verdict = endpoint_.on_data(data(numbers[i], 0, i, 0), false, us(10)).verdict;
    EXPECT_EQ(verdict, i % 60 == 0 ? Placement::Verdict::kPlace : Placement::Verdict::kStale);
  }
}

// 38 of 40 packets and the stop arrive, the stop at 571 µs. Returns when the other two count as
// lost if nothing else arrives.
Time lose_the_end(DlcpEndpoint& endpoint, std::uint32_t transfer, std::uint8_t queue = 0) {
  // A queue builds up: packets that leave every 1 µs arrive every 10 µs.
  for (std::uint32_t i = 0; i < 38; ++i) {
    wire::DataHeader header = data(transfer, i, i, 100 + i);
    header.tag.priority = queue;
    endpoint.on_data(header, false, us(200 + 10 * i));
  }
  endpoint.on_control(wire::StopMessage{transfer, 0, 40, 139, queue}, us(571));
  const Time lost = *endpoint.next_timeout();
  EXPECT_GT(lost, us(800)) << "the spread of delays";
  return lost;
}

TEST_F(DlcpEndpointTest, receive__a_packet_of_another_transfer_shows_a_loss) {
  ASSERT_TRUE(endpoint_.start_recv(floats(40), us(0)).ok());
  ASSERT_TRUE(endpoint_.start_recv(floats(40), us(0)).ok());
  const auto first = next_message<wire::ReadyMessage>(endpoint_);
  const auto second = next_message<wire::ReadyMessage>(endpoint_);
  lose_the_end(endpoint_, first.transfer);
  endpoint_.on_data(data(second.transfer, 0, 40, 140), false, us(600));
  EXPECT_EQ(*endpoint_.next_timeout(), us(620)) << "the packet behind them is here";
  endpoint_.on_timeout(us(620));
  EXPECT_EQ(next_message<wire::ResendMessage>(endpoint_),
            (wire::ResendMessage{first.transfer, 1, true, {{38, 2}}}));
}

TEST_F(DlcpEndpointTest, receive__only_its_own_queue_and_less_urgent_ones_show_a_loss) {
  for (const bool by_copy : {false, true}) {
    SCOPED_TRACE(by_copy);
    DlcpEndpoint endpoint(named("bob"));
    ASSERT_TRUE(endpoint.start_recv(floats(40), us(0)).ok());
    ASSERT_TRUE(endpoint.start_recv(floats(40), us(0)).ok());
    const auto first = next_message<wire::ReadyMessage>(endpoint);
    const auto second = next_message<wire::ReadyMessage>(endpoint);
    const Time without = lose_the_end(endpoint, first.transfer, 4);
    const auto pass = [&](std::uint8_t queue, Time now) {
      if (by_copy) return endpoint.on_data_end(41, queue, now);
      wire::DataHeader header = data(second.transfer, queue, 40 + queue, 140);
      header.tag.priority = queue;
      endpoint.on_data(header, false, now);
    };
    pass(3, us(590));
    EXPECT_GE(*endpoint.next_timeout(), without) << "a more urgent one overtakes";
    pass(5, us(600));
    EXPECT_EQ(*endpoint.next_timeout(), us(620)) << "a less urgent one does not";
  }
}

TEST_F(DlcpEndpointTest, receive__a_message_behind_the_data_shows_a_loss) {
  ASSERT_TRUE(endpoint_.start_recv(floats(40), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  const Time without = lose_the_end(endpoint_, ready.transfer);
  endpoint_.on_data_end(39, 0, us(580));
  EXPECT_EQ(*endpoint_.next_timeout(), without) << "not behind all of it";
  endpoint_.on_data_end(std::uint64_t{1} << 40, 0, us(585));
  EXPECT_EQ(*endpoint_.next_timeout(), without) << "makes no sense";
  endpoint_.on_data_end(40, 0, us(600));
  EXPECT_EQ(*endpoint_.next_timeout(), us(620));
  endpoint_.on_timeout(us(620));
  EXPECT_EQ(next_message<wire::ResendMessage>(endpoint_),
            (wire::ResendMessage{ready.transfer, 1, true, {{38, 2}}}));
}

TEST_F(DlcpEndpointTest, deadline__fails_with_peer_transfer_and_cause) {
  TransferSpec spec = floats(4, 0.25);
  spec.deadline = Duration::milliseconds(1);
  ASSERT_TRUE(endpoint_.start_send(spec, {}, us(0)).ok());
  ASSERT_TRUE(endpoint_.start_recv(spec, us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  place(ready.transfer, 0, us(100));
  endpoint_.on_timeout(us(999));
  EXPECT_TRUE(running(endpoint_));
  EXPECT_EQ(*endpoint_.next_timeout(), us(1000));
  endpoint_.on_timeout(us(1000));
  EXPECT_EQ(outcome_of(endpoint_).error,
            "send to bob, transfer 42: the receiver was not ready within the sender's deadline of "
            "1ms");
  const TransferOutcome received = outcome_of(endpoint_);
  EXPECT_EQ(received.error,
            "receive from bob, transfer 42: 3 of 4 segments are missing at the receiver's deadline "
            "of 1ms, 1 may be");
  EXPECT_EQ(received.missing, (std::vector<Bitmap::Run>{{1, 4}}));
  const auto cancel = next_message<wire::CancelMessage>(endpoint_);
  EXPECT_EQ(cancel.reason, wire::CancelReason::kDeadline);
  EXPECT_TRUE(cancel.from_receiver);
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpEndpointTest, cancel__both_ways_and_once) {
  const auto sent = endpoint_.start_send(floats(4), {}, us(0));
  endpoint_.on_control(ready_for(floats(4), 3), us(0));
  const auto received = endpoint_.start_recv(floats(4), us(0));
  next_message<wire::ReadyMessage>(endpoint_);
  endpoint_.cancel(*sent, "no longer needed", us(1));
  EXPECT_EQ(next_message<wire::CancelMessage>(endpoint_),
            (wire::CancelMessage{3, false, wire::CancelReason::kCancelled,
                                 "cancelled: no longer needed"}));
  endpoint_.cancel(*received, "no longer needed", us(1));
  EXPECT_TRUE(next_message<wire::CancelMessage>(endpoint_).from_receiver);
  EXPECT_EQ(outcome_of(endpoint_).error, "send to bob, transfer 42: cancelled: no longer needed");
  EXPECT_EQ(outcome_of(endpoint_).error,
            "receive from bob, transfer 42: cancelled: no longer needed");
  endpoint_.cancel(*sent, "again", us(2));
  endpoint_.cancel(*received, "again", us(2));
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpEndpointTest, cancel__by_the_peer_in_words_a_terminal_may_show) {
  const auto sent = endpoint_.start_send(floats(4), {}, us(0));
  ASSERT_TRUE(sent.ok());
  endpoint_.on_control(ready_for(floats(4), 3), us(0));
  endpoint_.on_control(wire::CancelMessage{3, true, {}, "out\x1b[2J of\nmemory"}, us(1));
  EXPECT_EQ(outcome_of(endpoint_).error,
            "send to bob, transfer 42: bob ended it: out?[2J of?memory");
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpEndpointTest, cancel__crossing_a_finish_leaves_nothing_behind) {
  ASSERT_TRUE(endpoint_.start_recv(floats(1), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(endpoint_);
  place(ready.transfer, 0, us(20));
  next_message<wire::FinishMessage>(endpoint_);
  EXPECT_TRUE(outcome_of(endpoint_).ok());
  EXPECT_FALSE(endpoint_.idle());
  endpoint_.on_control(wire::CancelMessage{ready.transfer, false, {}, "late"}, us(30));
  EXPECT_TRUE(endpoint_.idle());
  EXPECT_TRUE(running(endpoint_));
}

TEST_F(DlcpEndpointTest, closing__a_confirm_that_never_comes_is_not_waited_for_forever) {
  TransferSpec spec = floats(1);
  spec.deadline = Duration::milliseconds(2);
  ASSERT_TRUE(endpoint_.start_recv(spec, us(0)).ok());
  place(next_message<wire::ReadyMessage>(endpoint_).transfer, 0, us(20));
  EXPECT_TRUE(outcome_of(endpoint_).ok());
  next_message<wire::FinishMessage>(endpoint_);
  EXPECT_EQ(endpoint_.next_timeout(), us(2000));
  endpoint_.on_timeout(us(2000));
  EXPECT_TRUE(endpoint_.idle());
}

TEST_F(DlcpEndpointTest, connection_lost__everything_fails_once_and_nothing_starts) {
  ASSERT_TRUE(endpoint_.start_send(floats(4), {}, us(0)).ok());
  ASSERT_TRUE(endpoint_.start_recv(floats(4), us(0)).ok());
  TransferSpec other = floats(1);
  other.key = 1;
  endpoint_.on_control(ready_for(other, 8), us(0));
  endpoint_.connection_lost("reset by peer", us(5));
  endpoint_.connection_lost("again", us(6));
  EXPECT_EQ(outcome_of(endpoint_).error, "send to bob, transfer 42: reset by peer");
  EXPECT_EQ(outcome_of(endpoint_).error, "receive from bob, transfer 42: reset by peer");
  EXPECT_TRUE(endpoint_.idle());
  EXPECT_FALSE(endpoint_.next_timeout().has_value());
  const auto refused = endpoint_.start_recv(floats(4), us(7));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "the connection to bob is lost: reset by peer");
}

}  // namespace
}  // namespace thalweg::proto
