// An endpoint whose receiver gives grants, by hand: first burst, grants in any order, asking, busy
// hosts, replaced segments, messages that make no sense.
#include <gtest/gtest.h>

#include <array>

#include "dlcp_by_hand.h"

namespace thalweg::proto {
namespace {

GrantOptions host(double first = 0.01) {
  GrantOptions options;
  options.line_rate = Bandwidth::gbps(10);
  options.round_trip = Duration::microseconds(100);
  options.first = first;
  options.busy_above = 1;
  options.order.by_size = true;
  return options;
}

DlcpOptions unhurried(const char* peer) {
  DlcpOptions options = named(peer);
  options.burst_segments = 1;
  options.want.after = Duration::microseconds(400);
  return options;
}

std::vector<GrantScheduler::Grant> grants_of(GrantScheduler& scheduler) {
  std::vector<GrantScheduler::Grant> all;
  GrantScheduler::Grant grant;
  while (scheduler.poll(grant)) all.push_back(grant);
  return all;
}

// A sender whose receiver, with number 5, lets it send `first` segments.
struct Granted {
  explicit Granted(std::uint32_t first, std::int64_t segments = 50, double bound = 0)
      : endpoint(unhurried("b")) {
    const TransferSpec spec = floats(segments, bound);
    EXPECT_TRUE(endpoint.start_send(spec, TagSource(), us(0)).ok());
    wire::ReadyMessage ready = ready_for(spec, 5);
    ready.first = first;
    endpoint.on_control(ready, us(0));
  }
  std::size_t leaves(Time until) { return segments_until(endpoint, until).size(); }
  DlcpEndpoint endpoint;
};

TEST(DlcpGrants, sender__sends_the_first_burst_and_then_what_is_granted) {
  Granted sender(4);
  EXPECT_EQ(sender.leaves(us(100)), 4U);
  sender.endpoint.on_control(wire::GrantMessage{5, 12}, us(110));
  EXPECT_EQ(sender.leaves(us(200)), 8U);
  sender.endpoint.on_control(wire::GrantMessage{5, 12}, us(210));
  sender.endpoint.on_control(wire::GrantMessage{5, 7}, us(210));
  EXPECT_EQ(sender.leaves(us(300)), 0U) << "doubled and late grants give nothing";
  EXPECT_EQ(sender.endpoint.counters().grants_received, 3U);
  EXPECT_TRUE(silent(sender.endpoint));
}

TEST(DlcpGrants, sender__a_grant_of_all_ends_the_round_with_a_stop) {
  Granted sender(4);
  sender.endpoint.on_control(wire::GrantMessage{5, 50}, us(1));
  EXPECT_EQ(sender.leaves(us(1000)), 50U);
  EXPECT_EQ(next_message<wire::StopMessage>(sender.endpoint).end_sequence, 50U);
}

TEST(DlcpGrants, sender__asks_when_no_grant_comes_and_then_less_often) {
  Granted sender(4);
  EXPECT_EQ(sender.leaves(us(100)), 4U);
  std::vector<std::int64_t> asked;
  for (std::int64_t t = 100; t < 4000; t += 10) {
    sender.endpoint.on_timeout(us(t));
    wire::ControlMessage message;
    if (!sender.endpoint.poll_control(message)) continue;
    EXPECT_EQ(std::get<wire::WantMessage>(message), (wire::WantMessage{5, 4, 4, false}));
    asked.push_back(t);
  }
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_NEAR(static_cast<double>(asked[1] - asked[0]), 800, 20);
  EXPECT_NEAR(static_cast<double>(asked[2] - asked[1]), 1600, 20);
}

TEST(DlcpGrants, sender__what_the_receiver_asks_for_again_needs_no_grant) {
  Granted sender(50);
  EXPECT_EQ(sender.leaves(us(1000)), 50U);
  next_message<wire::StopMessage>(sender.endpoint);
  sender.endpoint.on_control(wire::ResendMessage{5, 1, true, {{3, 10}}}, us(1000));
  EXPECT_EQ(sender.leaves(us(2000)), 10U);
}

TEST(DlcpGrants, sender__only_the_first_transfer_of_a_peer_has_a_burst) {
  Granted sender(4);
  TransferSpec spec = floats(50);
  spec.key = 43;
  ASSERT_TRUE(sender.endpoint.start_send(spec, TagSource(), us(0)).ok());
  wire::ReadyMessage ready = ready_for(spec, 6);
  ready.first = 4;
  sender.endpoint.on_control(ready, us(0));
  EXPECT_EQ(sender.leaves(us(100)), 5U);
}

TEST(DlcpGrants, sender__counts_grants_that_no_correct_receiver_gives) {
  Granted sender(4);
  sender.endpoint.on_control(wire::GrantMessage{5, 51}, us(1));
  EXPECT_EQ(sender.endpoint.counters().bad_messages, 1U);
  sender.endpoint.on_control(wire::GrantMessage{9, 1}, us(1));
  EXPECT_EQ(sender.endpoint.counters().stale_messages, 1U);
  Granted literal(wire::kUngranted);
  literal.endpoint.on_control(wire::GrantMessage{5, 10}, us(1));
  EXPECT_EQ(literal.endpoint.counters().bad_messages, 1U);
  EXPECT_EQ(literal.leaves(us(1000)), 50U);
}

TEST(DlcpGrants, sender__of_a_busy_host_says_so_once) {
  GrantScheduler scheduler(host());
  DlcpEndpoint endpoint(unhurried("b"), &scheduler);
  scheduler.offer(1'000'000);  // other endpoints of the host
  const TransferSpec spec = floats(50);
  ASSERT_TRUE(endpoint.start_send(spec, TagSource(), us(0)).ok());
  wire::ReadyMessage ready = ready_for(spec, 5);
  ready.first = 4;
  endpoint.on_control(ready, us(0));
  EXPECT_EQ(next_message<wire::WantMessage>(endpoint), (wire::WantMessage{5, 0, 4, true}));
  endpoint.on_control(wire::GrantMessage{5, 12}, us(1));
  EXPECT_TRUE(silent(endpoint));
  scheduler.offer(-1'000'000);
  EXPECT_FALSE(scheduler.busy());
}

// A receiver of 50 segments, 45 of which it needs.
struct Granting {
  explicit Granting(double first = 0.01)
      : scheduler(host(first)), endpoint(unhurried("a"), &scheduler, 3) {
    EXPECT_TRUE(endpoint.start_recv(floats(50, 0.1), us(0)).ok());
    ready = next_message<wire::ReadyMessage>(endpoint);
  }
  // The n-th segment in the order of sending arrives.
  void arrive(std::uint32_t n, Time now) {
    const auto start =
        static_cast<std::uint32_t>(first_segment(ready.transfer, 50, *LossBound::of(0.1)));
    endpoint.on_data(data(ready.transfer, (start + n) % 50, n, 0), false, now);
  }
  GrantScheduler scheduler;
  DlcpEndpoint endpoint;
  wire::ReadyMessage ready;
};

TEST(DlcpGrants, receiver__grants_by_eight_and_as_many_as_the_bound_needs) {
  Granting receiver;
  EXPECT_EQ(receiver.ready.first, 1U);
  EXPECT_TRUE(grants_of(receiver.scheduler).empty());
  receiver.arrive(0, us(10));
  const auto given = grants_of(receiver.scheduler);
  ASSERT_EQ(given.size(), 6U);
  EXPECT_EQ(given.front().segments, 9U);
  EXPECT_EQ(given.back().segments, 45U);
  EXPECT_EQ(given.front().peer, 3U);
  for (std::uint32_t n = 1; n < 45; ++n) receiver.arrive(n, us(20));
  EXPECT_TRUE(outcome_of(receiver.endpoint).ok());
  EXPECT_EQ(receiver.scheduler.transfers(), 0U);
  EXPECT_EQ(receiver.scheduler.in_flight(), Bytes(0));
}

TEST(DlcpGrants, receiver__replaces_lost_segments_by_unsent_ones) {
  Granting receiver;
  for (std::uint32_t n = 0; n < 45; ++n) {
    if (n != 7 && n != 20) receiver.arrive(n, us(10));
  }
  EXPECT_EQ(grants_of(receiver.scheduler).back().segments, 47U);
  EXPECT_TRUE(running(receiver.endpoint));
  receiver.arrive(45, us(20));
  receiver.arrive(46, us(20));
  const TransferOutcome outcome = outcome_of(receiver.endpoint);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.retransmissions, 0U);
}

TEST(DlcpGrants, receiver__takes_what_a_waiting_sender_sent_for_lost) {
  Granting receiver;
  for (std::uint32_t n = 0; n < 43; ++n) receiver.arrive(n, us(10));
  EXPECT_EQ(grants_of(receiver.scheduler).back().segments, 45U);
  receiver.endpoint.on_control(wire::WantMessage{receiver.ready.transfer, 45, 45, false}, us(1000));
  EXPECT_EQ(grants_of(receiver.scheduler).back().segments, 47U);
}

TEST(DlcpGrants, receiver__forgets_a_transfer_that_is_cancelled_or_whose_peer_is_gone) {
  Granting cancelled;
  cancelled.arrive(0, us(10));
  cancelled.endpoint.cancel(TransferHandle{1}, "a test", us(20));
  EXPECT_EQ(cancelled.scheduler.transfers(), 0U);
  EXPECT_TRUE(grants_of(cancelled.scheduler).empty());
  Granting alone;
  alone.endpoint.connection_lost("gone", us(20));
  EXPECT_EQ(alone.scheduler.transfers(), 0U);
}

TEST(DlcpGrants, receiver__counts_wants_that_no_correct_sender_sends) {
  Granting receiver;
  receiver.endpoint.on_control(wire::WantMessage{receiver.ready.transfer, 0, 51, false}, us(1));
  EXPECT_EQ(receiver.endpoint.counters().bad_messages, 1U);
  receiver.endpoint.on_control(wire::WantMessage{77, 0, 0, false}, us(1));
  EXPECT_EQ(receiver.endpoint.counters().stale_messages, 1U);
  DlcpEndpoint literal(named("a"));
  ASSERT_TRUE(literal.start_recv(floats(50), us(0)).ok());
  const auto ready = next_message<wire::ReadyMessage>(literal);
  EXPECT_EQ(ready.first, wire::kUngranted);
  literal.on_control(wire::WantMessage{ready.transfer, 0, 0, false}, us(1));
  EXPECT_EQ(literal.counters().bad_messages, 1U);
}

TEST(DlcpGrants, next_key__the_urgent_then_the_shortest_is_sent_first) {
  DlcpOptions options = unhurried("b");
  options.order = {.by_urgency = true, .by_size = true, .ageing = 0};
  DlcpEndpoint endpoint(options);
  EXPECT_FALSE(endpoint.next_key());
  const std::array<std::pair<std::int64_t, std::uint32_t>, 3> sizes{{{50, 1}, {20, 1}, {90, 0}}};
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    TransferSpec spec = floats(sizes[i].first);
    spec.key = i;
    spec.urgency = sizes[i].second;
    ASSERT_TRUE(endpoint.start_send(spec, TagSource(), us(0)).ok());
    endpoint.on_control(ready_for(spec, i), us(0));
  }
  std::vector<std::uint32_t> order;
  DataBatch batch;
  for (auto next = endpoint.next_timeout(); endpoint.next_key(); next = endpoint.next_timeout()) {
    ASSERT_TRUE(endpoint.poll_data(*next, 1, batch));
    if (order.empty() || order.back() != batch.transfer) order.push_back(batch.transfer);
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 1, 0}));
}

}  // namespace
}  // namespace thalweg::proto
