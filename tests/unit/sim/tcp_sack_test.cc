// Recovery with selective acknowledgements: exact traces by hand, given losses over a pipe, and
// whole networks that lose and reorder.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "scenario_fixture.h"
#include "sim/scenario/result_json.h"
#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

// A sender in congestion avoidance with a window of `size` segments.
SenderByHand selective(double size, KeyValues given = {}) {
  given.emplace("warm", "avoidance");
  given.emplace("sack", "on");
  return {"newreno", given, 1000, size};
}

struct SackRow {
  std::uint64_t next;
  std::vector<SackBlock> blocks;
  Numbers sent;
};

void play(SenderByHand& flow, const std::vector<SackRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "row " << i);
    flow.sack(rows[i].next, rows[i].blocks);
    EXPECT_EQ(flow.send(), rows[i].sent);
  }
}

// Segments 0, 3 and 6 of a window of 10 are lost, as in TcpNewReno's fast_recovery: here all three
// are sent again before the first of them is acknowledged.
TEST(TcpSack, recovery__all_holes_in_one_round_trip) {
  SenderByHand flow = selective(10);
  EXPECT_EQ(flow.send(), range(0, 10));
  play(flow,
       {
           {0, {{1, 2}}, {10}}, {0, {{1, 3}}, {11}}, {0, {{4, 5}, {1, 3}}, {0}},  // three behind 0
       });
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  EXPECT_TRUE(flow.last().retransmission);
  play(flow, {
                 // 8 are in flight; of 2 that have arrived since, 5/12 may be sent: less than one.
                 {0, {{4, 6}, {1, 3}}, {}},
                 {0, {{7, 8}, {4, 6}, {1, 3}}, {}},  // three behind 3
                 {0, {{7, 9}, {4, 6}, {1, 3}}, {}},
                 {0, {{7, 10}, {4, 6}, {1, 3}}, {3, 6}},  // three behind 6; 3 in flight
                 {0, {{7, 11}, {4, 6}, {1, 3}}, {12}},
                 {0, {{7, 12}, {4, 6}, {1, 3}}, {13}},
                 {3, {{7, 12}, {4, 6}}, {14}},
                 {6, {{7, 12}}, {15}},
                 {12, {}, {16}},
             });
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  EXPECT_EQ(flow.sender().counters().retransmissions, 3U);
  EXPECT_EQ(flow.sender().counters().timeouts, 0U);
  flow.sack(13, {});
  EXPECT_DOUBLE_EQ(flow.window(), 5.2);
}

TEST(TcpSack, limited_transmit__off_keeps_the_window_shut) {
  SenderByHand flow = selective(10, {{"limited_transmit", "off"}});
  EXPECT_EQ(flow.send(), range(0, 10));
  play(flow, {{0, {{1, 2}}, {}}, {0, {{1, 3}}, {}}, {0, {{1, 4}}, {0}}});
}

TEST(TcpSack, duplicates__without_news_mean_nothing) {
  SenderByHand flow = selective(10);
  flow.send();
  flow.sack(0, {{1, 3}});
  EXPECT_EQ(flow.send(), (Numbers{10, 11}));
  for (int i = 0; i < 10; ++i) play(flow, {{0, {{1, 3}}, {}}});
  EXPECT_DOUBLE_EQ(flow.window(), 10);
}

// Segment 12, sent during the recovery from the loss of 0, is lost too: that is a second loss.
TEST(TcpSack, recovery__a_later_loss_begins_another) {
  SenderByHand flow = selective(10);
  flow.send();
  play(flow, {
                 {0, {{1, 3}}, {10, 11}},
                 {0, {{1, 4}}, {0}},
                 {0, {{1, 10}}, {12, 13}},
                 {0, {{1, 12}}, {14, 15}},
                 {12, {}, {16}},  // all before was repaired
             });
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  play(flow, {{12, {{13, 14}}, {17}}, {12, {{13, 15}}, {18}}, {12, {{13, 16}}, {12}}});
  EXPECT_DOUBLE_EQ(flow.window(), 2.5);
}

TEST(TcpSack, timeout__sends_only_what_did_not_arrive) {
  SenderByHand flow = selective(8);
  flow.send();
  play(flow, {{0, {{4, 6}}, {8, 9}}});
  flow.time_out();
  EXPECT_DOUBLE_EQ(flow.window(), 1);
  EXPECT_EQ(flow.send(), Numbers{0});
  play(flow, {
                 {1, {{4, 6}}, {1, 2}},
                 {2, {{4, 6}}, {3, 6}},
                 {3, {{4, 6}}, {7, 8}},
                 {6, {}, {9}},  // above the threshold of 4
             });
  EXPECT_TRUE(flow.last().retransmission);
}

// The link has a round trip of a millisecond and is so fast that sending takes no time beside it.
PipeOptions long_pipe() {
  PipeOptions options;
  options.rate = Bandwidth::gbps(10);
  options.delay = Duration::microseconds(500);
  return options;
}

constexpr std::uint64_t kLateWindow = 155;  // in sending order; 160 segments are in flight there

// The time from the first retransmission to the last when `losses` segments of one window are lost.
Duration repair_time(const char* sack, std::uint64_t losses) {
  const auto factory = transport_or_fail("newreno", {{"sack", sack}, {"rto_min", "1s"}});
  PipeOptions options = long_pipe();
  options.lose = [losses](const SegmentToSend&, std::uint64_t number) {
    return number >= kLateWindow && number < kLateWindow + 2 * losses && number % 2 == 1;
  };
  Pipe pipe(*factory, options);
  pipe.run({1'000'000}, Time::at(Duration::milliseconds(1000)));
  EXPECT_TRUE(pipe.all_done());
  EXPECT_EQ(pipe.sender(0).counters().timeouts, 0U);
  EXPECT_EQ(pipe.sender(0).counters().retransmissions, losses);
  std::vector<Time> times;
  for (const SentSegment& sent : pipe.sent()) {
    if (sent.segment.retransmission) times.push_back(sent.time);
  }
  return times.back() - times.front();
}

TEST(TcpSack, pipe__n_losses_take_one_round_trip_instead_of_n) {
  const Duration round_trip = Duration::milliseconds(1);
  for (const std::uint64_t losses : {2U, 8U, 20U}) {
    SCOPED_TRACE(losses);
    EXPECT_LT(repair_time("on", losses), round_trip);
    EXPECT_GT(repair_time("off", losses), round_trip * static_cast<std::int64_t>(losses - 1));
  }
}

struct Losing {
  Duration taken;
  SenderCounters counters;
};

Losing run_that_loses(std::uint64_t segments,
                      std::function<bool(const SegmentToSend&, std::uint64_t)> lose) {
  const auto factory = transport_or_fail("newreno", {{"sack", "on"}});
  PipeOptions options = long_pipe();
  options.lose = std::move(lose);
  Pipe pipe(*factory, options);
  pipe.run({segments * 1460}, Time::at(Duration::milliseconds(10'000)));
  EXPECT_TRUE(pipe.all_done());
  return {pipe.last_done().since_start(), pipe.sender(0).counters()};
}

// The segments before arrive within 5 ms. The last one alone is not probed for before the timeout
// of 10 ms.
TEST(TcpSack, pipe__a_lost_tail_ends_by_a_probe_or_by_the_timer) {
  for (const std::uint64_t lost : {1U, 2U, 5U}) {
    SCOPED_TRACE(lost);
    const Losing losing = run_that_loses(100, [&](const SegmentToSend& s, std::uint64_t) {
      return !s.retransmission && s.sequence >= (100 - lost) * 1460;
    });
    EXPECT_EQ(losing.counters.timeouts, lost == 1 ? 1U : 0U);
    EXPECT_EQ(losing.counters.retransmissions, lost);
    EXPECT_EQ(losing.taken > Duration::milliseconds(13), lost == 1);
    EXPECT_LT(losing.taken, Duration::milliseconds(20));
  }
}

TEST(TcpSack, pipe__a_lost_probe_ends_by_the_timer) {
  std::uint64_t probes = 0;
  const Losing losing = run_that_loses(100, [&](const SegmentToSend& s, std::uint64_t) {
    if (s.retransmission) return ++probes == 1;
    return s.sequence >= 95U * 1460;
  });
  EXPECT_EQ(losing.counters.timeouts, 1U);
  EXPECT_EQ(losing.counters.retransmissions, 6U);
}

// A sender whose round trip is known, with segments 2 to 9 in flight.
SenderByHand with_round_trip(KeyValues given = {}) {
  SenderByHand flow = selective(8, std::move(given));
  flow.send();
  for (const std::uint64_t next : {1U, 2U}) {
    flow.sack(next, {});
    flow.send();
  }
  return flow;
}

TEST(TcpSack, probe__a_new_segment_after_two_round_trips) {
  SenderByHand flow = with_round_trip();
  EXPECT_EQ(flow.until_timeout(), Duration::microseconds(200));
  flow.time_out();
  EXPECT_EQ(flow.send(), Numbers{10});  // one more than the window
  EXPECT_EQ(flow.sender().counters().timeouts, 0U);
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(10));  // no second one
  flow.set_round_trip(Duration());
  flow.wait(Duration::microseconds(100));
  // 10 was sent two round trips after the others, which are lost.
  flow.sack(2, {{10, 11}});
  EXPECT_EQ(flow.send(), Numbers{2});
  EXPECT_NEAR(flow.window(), 4.125, 0.01);  // half of the window
}

TEST(TcpSack, probe__the_last_segment_again_if_there_is_no_other) {
  SenderByHand flow("newreno", {{"sack", "on"}}, 10, 10);
  flow.send();
  for (const std::uint64_t next : {1U, 2U, 3U}) flow.ack(next);
  flow.time_out();
  EXPECT_EQ(flow.send(), Numbers{9});
  EXPECT_TRUE(flow.last().retransmission);
  const double before = flow.window();
  flow.ack(9);
  EXPECT_DOUBLE_EQ(flow.window(), before);
  flow.ack(10, false, true);
  EXPECT_TRUE(flow.sender().done());
}

// The probe's own acknowledgement is the first that covers segment 9, so 9 was lost.
TEST(TcpSack, probe__that_repairs_a_loss_halves_the_window) {
  for (const bool answers_probe : {false, true}) {
    SCOPED_TRACE(answers_probe);
    SenderByHand flow("newreno", {{"sack", "on"}, {"max_window", "14600B"}}, 1000, 10);
    flow.send();
    flow.ack(1);
    flow.send();
    flow.time_out();
    EXPECT_EQ(flow.send(), Numbers{10});  // the receiver has no room for a new one
    flow.ack(11, false, answers_probe);
    EXPECT_DOUBLE_EQ(flow.window(), answers_probe ? 5.2 : 10);
  }
}

TEST(TcpSack, probe__not_without_fast_retransmits) {
  EXPECT_EQ(with_round_trip({{"dupacks", "0"}}).until_timeout(), Duration::milliseconds(10));
}

// The first retransmission of two segments is lost. While others arrive, they tell of it; at the
// end of a flow nothing does but the timer.
TEST(TcpSack, pipe__a_retransmission_lost_again_is_sent_again) {
  for (const bool at_the_end : {false, true}) {
    SCOPED_TRACE(at_the_end);
    const std::uint64_t first = at_the_end ? 490 : 160;
    std::set<std::uint64_t> again;
    const Losing losing = run_that_loses(500, [&](const SegmentToSend& s, std::uint64_t number) {
      if (!s.retransmission) return number == first || number == first + 2;
      return again.insert(s.sequence).second;
    });
    EXPECT_EQ(losing.counters.timeouts, at_the_end ? 1U : 0U);
    EXPECT_EQ(again.size(), 2U);
    EXPECT_EQ(losing.counters.retransmissions, 4U);
    EXPECT_LT(losing.taken, Duration::milliseconds(at_the_end ? 25 : 15));
  }
}

// A buffer of a tenth of the path's content is overrun by slow start: half a window is lost.
TEST(TcpSack, pipe__an_overrun_buffer_costs_far_less) {
  Duration taken[2];
  for (const bool sack : {false, true}) {
    const auto factory =
        transport_or_fail("cubic", {{"sack", sack ? "on" : "off"}, {"rto_min", "200ms"}});
    PipeOptions options;
    options.rate = Bandwidth::bits_per_second(20'000'000);
    options.delay = Duration::milliseconds(15);
    options.buffer = Bytes(60'000);
    Pipe pipe(*factory, options);
    pipe.run({4'000'000}, Time::at(Duration::milliseconds(100'000)));
    EXPECT_TRUE(pipe.all_done());
    if (sack) {
      EXPECT_EQ(pipe.sender(0).counters().timeouts, 0U);
    }
    taken[sack ? 1 : 0] = pipe.last_done().since_start();
  }
  const double ideal_s = 4e6 * 1500 / 1460 * 8 / 20e6;
  EXPECT_LT(taken[1].s(), ideal_s * 1.25);
  EXPECT_GT(taken[0].s(), taken[1].s() * 1.1);
}

// Whole networks: random loss, packets that overtake each other, buffers that overflow, flows and
// streams. The checkers of the run find bytes that are lost, kept or twice, and flows that are
// faster than possible.
constexpr const char* kNetwork = R"(
topology: leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=10G,buffer=40kB
transport: {{kind: {}, sack: on, rto_min: 1ms}}
network: {{discipline: strict-priority, balancing: {}, mark_above: 20kB}}
connections: {{forward: {}}}
seed: {}
jobs:
  - {{size: 1MB, scheme: ring, overlap: none, iterations: 2, hosts: [rack0-host0, rack0-host2, rack1-host1, rack1-host3]}}
background:
  - {{pattern: permutation, size: 70kB, load: 0.3, stop: 5ms}}
faults:
  - {{at: 0ms, link: [rack0-host0, leaf0], loss: 0.02}}
  - {{at: 0ms, link: [rack1-host1, leaf1], loss: 0.02}}
)";

std::string network_of(const char* kind, std::uint64_t seed) {
  return fmt::format(kNetwork, kind, seed % 2 == 0 ? "per-packet" : "flow-hash",
                     seed % 4 < 2 ? "packets" : "chunks", seed);
}

TEST(TcpSack, networks__every_byte_arrives_and_nothing_is_kept) {
  for (const char* const kind : {"newreno", "cubic", "dctcp"}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(testing::Message() << kind << " seed " << seed);
      const ScenarioResult result =
          fixture::result_of(fixture::scenario_of(network_of(kind, seed)));
      EXPECT_GT(result.counters.drops_fault, 0U);
      for (const FlowResult& flow : result.flows) EXPECT_GE(flow.completion_time(), flow.oracle);
    }
  }
}

TEST(TcpSack, networks__same_seed_same_result) {
  const auto text = [](std::uint64_t seed) {
    const Scenario scenario = fixture::scenario_of(network_of("cubic", seed));
    return to_json(fixture::result_of(scenario), scenario).dump();
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(7));
}

}  // namespace
}  // namespace thalweg::sim
