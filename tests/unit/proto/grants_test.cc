// GrantScheduler by hand: limits, order, shares, ageing, ties, lost segments, busy senders.
#include "proto/dlcp/grants.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "dlcp_by_hand.h"

namespace thalweg::proto {
namespace {

using Ticket = GrantScheduler::Ticket;
using Grant = GrantScheduler::Grant;

// 1 MB in a round trip, in segments of 1000 bytes; 3 MB in flight.
GrantOptions roomy() {
  GrantOptions options;
  options.line_rate = Bandwidth::gbps(80);
  options.round_trip = Duration::microseconds(100);
  options.overcommit = 3;
  options.first = 1;
  options.busy_above = 1;
  options.order = {.by_urgency = true, .by_size = true, .ageing = 0};
  options.seed = 7;
  return options;
}

GrantScheduler::Incoming incoming(std::uint32_t peer, std::uint32_t segments,
                                  std::uint32_t needed = 0, std::uint32_t urgency = 0) {
  return {.peer = peer,
          .transfer = 100 + peer,
          .segments = segments,
          .needed = needed == 0 ? segments : needed,
          .segment_bytes = Bytes(1000),
          .urgency = urgency};
}

std::vector<Grant> all_grants(GrantScheduler& grants) {
  std::vector<Grant> all;
  Grant grant;
  while (grants.poll(grant)) all.push_back(grant);
  return all;
}

// Peers in the order in which they got their first grant.
std::vector<std::uint32_t> first_served(GrantScheduler& grants) {
  std::vector<std::uint32_t> peers;
  for (const Grant& grant : all_grants(grants)) {
    if (std::ranges::find(peers, grant.peer) == peers.end()) peers.push_back(grant.peer);
  }
  return peers;
}

TEST(Grants, open__first_bursts_of_all_peers_share_a_round_trip) {
  GrantScheduler grants(roomy());
  std::vector<std::uint32_t> first;
  for (std::uint32_t peer = 0; peer < 4; ++peer) {
    first.push_back(grants.first(grants.open(incoming(peer, 5000), us(1))));
  }
  EXPECT_EQ(first, (std::vector<std::uint32_t>{1000, 500, 333, 250}));
  // The others are out of sight by then.
  EXPECT_EQ(grants.first(grants.open(incoming(9, 5000), us(20'000))), 1000U);
  EXPECT_EQ(grants.first(grants.open(incoming(9, 3), us(20'000))), 3U);
  EXPECT_TRUE(all_grants(grants).empty()) << "nobody is in sight";
}

TEST(Grants, poll__keeps_the_limit_of_the_host_and_of_a_transfer) {
  GrantOptions few = roomy();
  few.first = 0;
  GrantScheduler grants(few);
  std::map<std::uint32_t, Ticket> tickets;
  for (std::uint32_t peer = 0; peer < 40; ++peer) {
    tickets[peer] = grants.open(incoming(peer, 5000), us(1));
    grants.want(tickets[peer], 0, 1, false, us(2));
  }
  std::map<std::uint32_t, std::uint32_t> granted;
  for (const Grant& grant : all_grants(grants)) {
    EXPECT_EQ(grant.transfer, 100 + grant.peer);
    EXPECT_GT(grant.segments, granted[grant.peer]);
    granted[grant.peer] = grant.segments;
  }
  EXPECT_LE(grants.in_flight(), grants.limit());
  EXPECT_GT(grants.in_flight(), grants.limit() - Bytes(40 * 1000 + 8 * 1000));
  EXPECT_LE(granted.size(), 11U) << "a few transfers at a time";
  for (const auto& [peer, segments] : granted) EXPECT_LE(segments, 300U) << peer;

  // What arrives makes room for as much.
  const std::uint32_t peer = granted.begin()->first;
  grants.progress(tickets[peer], 16, 16, us(3));
  std::uint32_t more = 0;
  for (const Grant& grant : all_grants(grants)) more += grant.segments > 0 ? 8 : 0;
  EXPECT_GE(more, 16U);
  EXPECT_LE(grants.in_flight(), grants.limit());
}

TEST(Grants, poll__one_transfer_alone_fills_the_link) {
  GrantScheduler grants(roomy());
  const Ticket ticket = grants.open(incoming(0, 50'000), us(1));
  grants.progress(ticket, 1, 1, us(2));
  const std::vector<Grant> given = all_grants(grants);
  ASSERT_FALSE(given.empty());
  EXPECT_GE(given.back().segments, 2900U);
}

TEST(Grants, poll__urgent_first_then_shortest) {
  GrantOptions narrow = roomy();
  narrow.parallel = 1;
  narrow.first = 0;
  GrantScheduler grants(narrow);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes = {
      {900, 2}, {500, 2}, {2000, 1}, {100, 3}};
  for (std::uint32_t peer = 0; peer < sizes.size(); ++peer) {
    const Ticket ticket =
        grants.open(incoming(peer, sizes[peer].first, 0, sizes[peer].second), us(1));
    grants.want(ticket, 0, grants.first(ticket), false, us(2));
  }
  EXPECT_EQ(first_served(grants), (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(Grants, poll__without_urgency_the_shortest_is_first) {
  GrantOptions by_size = roomy();
  by_size.first = 0;
  by_size.order.by_urgency = false;
  GrantScheduler grants(by_size);
  for (std::uint32_t peer = 0; peer < 3; ++peer) {
    const Ticket ticket = grants.open(incoming(peer, 300 - 50 * peer, 0, peer), us(1));
    grants.want(ticket, 0, 1, false, us(2));
  }
  EXPECT_EQ(first_served(grants), (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(Grants, poll__a_transfer_that_waited_goes_before_a_shorter_new_one) {
  for (const double ageing : {0.0, 0.5}) {
    GrantOptions aged = roomy();
    aged.first = 0;
    aged.order.ageing = ageing;
    GrantScheduler grants(aged);
    const Ticket old = grants.open(incoming(0, 1000), us(0));
    grants.want(old, 0, 1, false, us(0));
    // 200 µs later the line could have carried 2 MB.
    const Ticket young = grants.open(incoming(1, 500), us(200));
    grants.want(young, 0, 1, false, us(200));
    const std::uint32_t expected = ageing > 0 ? 0 : 1;
    EXPECT_EQ(first_served(grants).front(), expected) << ageing;
  }
}

TEST(Grants, poll__equal_transfers_are_in_another_order_at_another_host) {
  const auto order_at = [](std::uint64_t seed) {
    GrantOptions here = roomy();
    here.first = 0;
    here.seed = seed;
    GrantScheduler grants(here);
    for (std::uint32_t peer = 0; peer < 10; ++peer) {
      grants.want(grants.open(incoming(peer, 100), us(1)), 0, 1, false, us(2));
    }
    return first_served(grants);
  };
  EXPECT_EQ(order_at(1), order_at(1));
  std::set<std::uint32_t> winners;
  for (std::uint64_t seed = 0; seed < 40; ++seed) winners.insert(order_at(seed).front());
  EXPECT_GE(winners.size(), 6U);
}

TEST(Grants, progress__a_lost_segment_is_replaced_within_the_bound) {
  GrantOptions none = roomy();
  none.first = 0;
  GrantScheduler grants(none);
  const Ticket ticket = grants.open(incoming(0, 100, 90), us(1));
  grants.progress(ticket, 1, 1, us(2));
  EXPECT_EQ(all_grants(grants).back().segments, 90U);
  grants.progress(ticket, 80, 85, us(3));
  EXPECT_EQ(all_grants(grants).back().segments, 95U);
  EXPECT_EQ(grants.in_flight(), Bytes(10 * 1000));
  // More is lost than the bound allows: all is granted, and the receiver will ask by itself.
  grants.progress(ticket, 80, 95, us(4));
  EXPECT_EQ(all_grants(grants).back().segments, 100U);
  grants.progress(ticket, 80, 100, us(5));
  EXPECT_TRUE(all_grants(grants).empty());
  EXPECT_EQ(grants.in_flight(), Bytes(0));
}

TEST(Grants, want__a_lost_grant_is_given_again) {
  GrantOptions none = roomy();
  none.first = 0;
  GrantScheduler grants(none);
  const Ticket ticket = grants.open(incoming(0, 20), us(1));
  grants.progress(ticket, 1, 1, us(2));
  EXPECT_EQ(all_grants(grants).back().segments, 20U);
  grants.want(ticket, 1, 1, false, us(1000));
  const std::vector<Grant> again = all_grants(grants);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].segments, 20U);
  grants.want(ticket, 20, 20, false, us(2000));
  EXPECT_TRUE(all_grants(grants).empty()) << "the sender knows all";
  EXPECT_EQ(grants.in_flight(), Bytes(0)) << "what it sent is here or lost";
}

TEST(Grants, want__a_busy_sender_has_a_limit_of_its_own_and_holds_no_place) {
  GrantOptions none = roomy();
  none.first = 0;
  GrantScheduler grants(none);
  const Ticket busy = grants.open(incoming(0, 1'000, 900), us(1));
  grants.want(busy, 0, 1, true, us(2));
  EXPECT_EQ(all_grants(grants).back().segments, 750U);
  EXPECT_EQ(grants.in_flight(), Bytes(0));
  grants.progress(busy, 2, 2, us(3));
  EXPECT_TRUE(all_grants(grants).empty()) << "less than a grant";
  grants.progress(busy, 100, 110, us(3));
  EXPECT_EQ(all_grants(grants).back().segments, 860U);
  grants.progress(busy, 800, 810, us(3));
  EXPECT_EQ(all_grants(grants).back().segments, 910U);
  EXPECT_EQ(grants.in_flight(), Bytes(0));
}

TEST(Grants, want__a_silent_transfer_loses_its_places_and_comes_back) {
  GrantOptions none = roomy();
  none.first = 0;
  GrantScheduler grants(none);
  const Ticket silent = grants.open(incoming(0, 50'000), us(1));
  grants.progress(silent, 1, 1, us(2));
  EXPECT_GE(all_grants(grants).back().segments, 2'900U) << "it has all places";
  // One place is free, which is less than a grant.
  grants.progress(silent, 2, 2, us(2));
  ASSERT_TRUE(all_grants(grants).empty());
  const Ticket other = grants.open(incoming(1, 1'000), us(3));
  grants.want(other, 1, 1, false, us(4));
  EXPECT_TRUE(all_grants(grants).empty());
  grants.want(other, 1, 1, false, us(99'000));
  EXPECT_TRUE(all_grants(grants).empty()) << "not silent for long enough";
  grants.want(other, 1, 1, false, us(101'000));
  EXPECT_EQ(all_grants(grants).back().peer, 1U);
  EXPECT_EQ(grants.in_flight(), Bytes(999 * 1'000)) << "the silent one holds nothing";
  EXPECT_TRUE(all_grants(grants).empty()) << "and gets nothing";
  grants.progress(silent, 2'900, 2'900, us(102'000));
  EXPECT_EQ(all_grants(grants).back().peer, 0U);
  EXPECT_LE(grants.in_flight(), grants.limit());
  grants.close(silent);
  grants.close(other);
  EXPECT_EQ(grants.in_flight(), Bytes(0));
}

TEST(Grants, on_timeout__finds_a_silent_transfer_while_others_want_grants) {
  GrantOptions none = roomy();
  none.first = 0;
  GrantScheduler grants(none);
  const Ticket silent = grants.open(incoming(0, 50'000), us(1));
  EXPECT_EQ(grants.next_timeout(), std::nullopt);
  grants.progress(silent, 1, 1, us(2));
  ASSERT_FALSE(all_grants(grants).empty());
  ASSERT_NE(grants.next_timeout(), std::nullopt) << "it wants more";
  const Ticket other = grants.open(incoming(1, 1'000), us(3));
  grants.progress(other, 1, 1, us(4));
  grants.on_timeout(us(99'000));
  EXPECT_TRUE(all_grants(grants).empty());
  EXPECT_GT(*grants.next_timeout(), us(99'000));
  grants.on_timeout(us(149'000));
  EXPECT_EQ(all_grants(grants).back().peer, 1U);
  EXPECT_EQ(grants.next_timeout(), std::nullopt) << "all that is not silent is granted";
  grants.progress(other, 1'000, 1'000, us(150'000));
  grants.progress(silent, 2'000, 2'000, us(150'000));
  EXPECT_EQ(all_grants(grants).back().peer, 0U);
  grants.close(silent);
  grants.close(other);
}

TEST(Grants, set_round_trip__changes_the_limit) {
  GrantScheduler grants(roomy());
  EXPECT_EQ(grants.limit(), Bytes(3'000'000));
  grants.set_round_trip(Duration::microseconds(200));
  EXPECT_EQ(grants.limit(), Bytes(6'000'000));
  grants.offer(2'000'000);
  EXPECT_FALSE(grants.busy());
  grants.set_round_trip(Duration::microseconds(100));
  EXPECT_EQ(grants.limit(), Bytes(3'000'000));
  EXPECT_TRUE(grants.busy());
}

TEST(Grants, offer__a_host_is_busy_with_more_than_a_round_trip_to_send) {
  GrantScheduler grants(roomy());
  grants.offer(1'000'000);
  EXPECT_FALSE(grants.busy());
  grants.offer(1);
  EXPECT_TRUE(grants.busy());
  grants.offer(-1);
  EXPECT_FALSE(grants.busy());
}

TEST(Grants, close__forgets_everything) {
  GrantScheduler grants(roomy());
  const Ticket ticket = grants.open(incoming(0, 5000), us(1));
  const Ticket other = grants.open(incoming(1, 5000), us(1));
  grants.want(ticket, 0, 0, false, us(2));
  grants.close(ticket);
  EXPECT_EQ(grants.transfers(), 1U);
  EXPECT_EQ(grants.in_flight(), Bytes(0));
  EXPECT_TRUE(all_grants(grants).empty());
  grants.close(other);
  EXPECT_EQ(grants.transfers(), 0U);
}

TEST(Grants, poll__limits_below_one_segment_still_let_one_grant_through) {
  GrantOptions tiny = roomy();
  tiny.line_rate = Bandwidth::bits_per_second(8'000);
  tiny.first = 0;
  GrantScheduler grants(tiny);
  const Ticket ticket = grants.open(incoming(0, 10), us(1));
  EXPECT_TRUE(all_grants(grants).empty());
  grants.progress(ticket, 1, 1, us(2));
  EXPECT_FALSE(all_grants(grants).empty());
}

TEST(Grants, validate__names_the_field) {
  const auto error_of = [](auto change) {
    GrantOptions bad = roomy();
    change(bad);
    const Status status = bad.validate();
    return status.ok() ? std::string() : status.error().message();
  };
  EXPECT_EQ(error_of([](GrantOptions&) {}), "");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.overcommit = 0; }),
            "grants.overcommit = 0: must be above 0 and at most 1000");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.quantum = 0; }),
            "grants.quantum = 0: must be at least 1");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.parallel = 0; }),
            "grants.parallel = 0: must be at least 1");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.order.ageing = -1; }),
            "grants.order.ageing = -1: must be from 0 to 1000");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.round_trip = Duration(); }),
            "grants.round_trip = 0ps: must be above 0");
  EXPECT_EQ(error_of([](GrantOptions& o) { o.stall = Duration(); }),
            "grants.stall = 0ps: must be above 0");
}

}  // namespace
}  // namespace thalweg::proto
