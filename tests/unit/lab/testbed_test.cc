// The network of a testbed in virtual time: frames in, frames out, and when.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "lab/testbed/aggregators.h"
#include "lab/testbed/capacity.h"
#include "lab/testbed/frame.h"
#include "lab/testbed/link_change.h"
#include "lab/testbed/live_fabric.h"
#include "lab/testbed/pcap.h"
#include "lab/testbed/stalls.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

using Bytes8 = std::vector<std::uint8_t>;

// IPv4 and UDP with a right header checksum.
Bytes8 frame_between(Rank from, Rank to, std::size_t ip_bytes, std::uint8_t traffic_class,
                     std::uint16_t port = 7) {
  Bytes8 frame(kEthernetHeader + ip_bytes);
  const auto put = [&](std::size_t at, const auto& bytes) {
    std::copy(bytes.begin(), bytes.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, mac_of(to));
  put(6, mac_of(from));
  frame[12] = 0x08;
  std::uint8_t* ip = frame.data() + kEthernetHeader;
  ip[0] = 0x45;
  ip[1] = traffic_class;
  ip[2] = static_cast<std::uint8_t>(ip_bytes >> 8);
  ip[3] = static_cast<std::uint8_t>(ip_bytes);
  ip[8] = 64;
  ip[9] = 17;
  put(kEthernetHeader + 12, ip_of(from));
  put(kEthernetHeader + 16, ip_of(to));
  ip[20] = static_cast<std::uint8_t>(port >> 8);
  ip[21] = static_cast<std::uint8_t>(port);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(ip[i] << 8 | ip[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  ip[10] = static_cast<std::uint8_t>(~sum >> 8);
  ip[11] = static_cast<std::uint8_t>(~sum);
  return frame;
}

// 0xffff for a header whose checksum is right.
std::uint32_t header_sum(const Bytes8& frame) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < 20; i += 2) {
    sum += static_cast<std::uint32_t>(frame[kEthernetHeader + i] << 8 |
                                      frame[kEthernetHeader + i + 1]);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

struct Seen : LiveFabric::Sink {
  struct Arrival {
    Rank host;
    Bytes8 frame;
    Time due;
  };
  std::vector<Arrival> arrivals;
  std::vector<topology::ArcId> crossings;
  Time last;
  void deliver(Rank host, std::span<const std::uint8_t> frame) override {
    arrivals.push_back({host, {frame.begin(), frame.end()}, last});
  }
  void crossed(Time when, topology::ArcId arc, std::span<const std::uint8_t>) override {
    crossings.push_back(arc);
    last = when;
  }
};

topology::Topology star(const char* more = "") {
  return *topology::topology_from_yaml(
      std::string("name: star\n"
                  "defaults: {rate: 100M, delay: 1ms, buffer: 30kB}\n"
                  "hosts: [{name: a}, {name: b}, {name: c}]\n"
                  "switches: [{name: s}]\n"
                  "links:\n"
                  "  - {between: [a, s]}\n"
                  "  - {between: [b, s]}\n"
                  "  - {between: [c, s]}\n") +
          more,
      "star");
}

sim::NetworkOptions by_priority() {
  sim::NetworkOptions options;
  options.queues.discipline = sim::QueueOptions::Discipline::kStrictPriority;
  return options;
}

constexpr std::uint8_t kEct0 = 2;
constexpr std::uint8_t kCs6 = 48 << 2;

Time at_ms(std::int64_t ms) { return Time::at(Duration::milliseconds(ms)); }

TEST(Frame, read_frame__names_the_host_class_and_flow) {
  const Bytes8 frame = frame_between(Rank(1), Rank(258), 100, kCs6 | kEct0);
  const auto fields = read_frame(frame, 300);
  ASSERT_TRUE(fields);
  EXPECT_EQ(fields->target, Rank(258));
  EXPECT_EQ(fields->dscp, 48);
  EXPECT_EQ(fields->ecn, sim::Ecn::kCapable);
  EXPECT_EQ(fields->flow_hash,
            read_frame(frame_between(Rank(1), Rank(258), 900, 0), 300)->flow_hash);
  EXPECT_NE(fields->flow_hash,
            read_frame(frame_between(Rank(1), Rank(258), 100, 0, 8), 300)->flow_hash);
  EXPECT_FALSE(read_frame(frame, 258));
  EXPECT_FALSE(read_frame(std::span(frame).first(13), 300));
  EXPECT_FALSE(read_frame(Bytes8(60, 0xff), 300));  // for all hosts
}

TEST(Frame, mark_congested__keeps_the_checksum_right) {
  for (int traffic_class = 0; traffic_class < 256; ++traffic_class) {
    Bytes8 frame = frame_between(Rank(0), Rank(1), 60, static_cast<std::uint8_t>(traffic_class));
    mark_congested(frame);
    EXPECT_EQ(read_frame(frame, 2)->ecn, sim::Ecn::kCongested);
    EXPECT_EQ(read_frame(frame, 2)->dscp, traffic_class >> 2);
    EXPECT_EQ(header_sum(frame), 0xffffU) << traffic_class;
  }
}

TEST(Frame, answer_arp__knows_the_hosts_and_no_others) {
  Bytes8 question(kArpFrame);
  std::fill_n(question.begin(), 6, std::uint8_t{0xff});
  const MacAddress asker = mac_of(Rank(0));
  std::copy(asker.begin(), asker.end(), question.begin() + 6);
  const std::array<std::uint8_t, 10> fixed{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1};
  std::copy(fixed.begin(), fixed.end(), question.begin() + 12);
  std::copy(asker.begin(), asker.end(), question.begin() + 22);
  const auto ask = [&](Rank host) {
    const auto ip = ip_of(host);
    std::copy(ip.begin(), ip.end(), question.begin() + 38);
    return answer_arp(question, 3);
  };
  const auto answer = ask(Rank(2));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::equal(asker.begin(), asker.end(), answer->begin()));
  EXPECT_EQ((*answer)[21], 2);  // an answer
  const MacAddress found = mac_of(Rank(2));
  EXPECT_TRUE(std::equal(found.begin(), found.end(), answer->begin() + 22));
  EXPECT_FALSE(ask(Rank(3)));
  question[21] = 2;
  EXPECT_FALSE(ask(Rank(2)));
}

TEST(LiveFabric, frames_arrive__when_rate_and_delay_say) {
  const topology::Topology topology = star();
  LiveFabric network(topology, by_priority(), 1500);
  const Bytes8 frame = frame_between(Rank(0), Rank(1), 1250, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(network.send(at_ms(10), Rank(0), frame));
  Seen seen;
  // Late, which changes nothing of when each was due: 0.1 ms on each link, 1 ms of delay on each.
  network.run(at_ms(100), seen);
  ASSERT_EQ(seen.arrivals.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const auto& arrival = seen.arrivals[static_cast<std::size_t>(i)];
    EXPECT_EQ(arrival.host, Rank(1));
    EXPECT_EQ(arrival.frame, frame);
    EXPECT_EQ(arrival.due, at_ms(12) + Duration::microseconds(200 + 100 * i));
  }
  EXPECT_EQ(network.lateness().over_1ms, 3U);
  EXPECT_EQ(network.frames_inside(), 0U);
  EXPECT_FALSE(network.next_event());
}

TEST(LiveFabric, next_event__is_when_something_happens) {
  const topology::Topology topology = star();
  LiveFabric network(topology, by_priority(), 1500);
  EXPECT_FALSE(network.next_event());
  Seen seen;
  ASSERT_TRUE(network.send(at_ms(5), Rank(0), frame_between(Rank(0), Rank(1), 1250, 0)));
  ASSERT_EQ(network.next_event(), at_ms(6) + Duration::microseconds(100));
  network.run(at_ms(6), seen);
  EXPECT_TRUE(seen.crossings.empty());
  // One that comes earlier than what is known.
  ASSERT_TRUE(network.send(at_ms(6), Rank(1), frame_between(Rank(1), Rank(2), 28, 0)));
  ASSERT_TRUE(network.next_event());
  EXPECT_EQ(*network.next_event(), at_ms(6) + Duration::microseconds(100));
  network.run(*network.next_event(), seen);
  EXPECT_EQ(seen.crossings.size(), 1U);
}

TEST(LiveFabric, urgent_frames__overtake) {
  const topology::Topology topology = star();
  LiveFabric network(topology, by_priority(), 1500);
  // Two hosts fill c's port; the urgent frame comes last.
  for (int i = 0; i < 4; ++i) {
    network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(2), 1250, 0));
    network.send(at_ms(0), Rank(1), frame_between(Rank(1), Rank(2), 1250, 0));
  }
  Seen seen;
  network.run(Time::at(Duration::microseconds(300)), seen);
  const Bytes8 urgent = frame_between(Rank(0), Rank(2), 100, kCs6);
  network.send(Time::at(Duration::microseconds(300)), Rank(0), urgent);
  network.run(at_ms(100), seen);
  ASSERT_EQ(seen.arrivals.size(), 9U);
  EXPECT_NE(seen.arrivals.back().frame, urgent);
}

TEST(LiveFabric, full_port__drops_and_marks_as_the_pipeline_says) {
  const topology::Topology topology = star();
  sim::NetworkOptions options = by_priority();
  options.queues.mark_above = Bytes(10'000);
  LiveFabric network(topology, options, 1500);
  // 100 frames of 1250 bytes at twice the rate: 50 leave while they come, one is under way, 24
  // wait in the buffer of 30 kB.
  for (int i = 0; i < 50; ++i) {
    network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(2), 1250, kEct0));
    network.send(at_ms(0), Rank(1), frame_between(Rank(1), Rank(2), 1250, kEct0));
  }
  Seen seen;
  network.run(at_ms(1000), seen);
  const sim::NetworkCounters& counters = network.counters();
  EXPECT_EQ(counters.drops_full, 100 - seen.arrivals.size());
  EXPECT_NEAR(static_cast<double>(seen.arrivals.size()), 74, 1);
  const auto marked = std::ranges::count_if(seen.arrivals, [](const Seen::Arrival& arrival) {
    return read_frame(arrival.frame, 3)->ecn == sim::Ecn::kCongested;
  });
  EXPECT_EQ(static_cast<std::uint64_t>(marked), counters.marks);
  EXPECT_GT(marked, 40);
}

TEST(LiveFabric, send__refuses_what_no_host_gets) {
  const topology::Topology topology = star();
  LiveFabric network(topology, by_priority(), 1500);
  EXPECT_FALSE(network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(3), 100, 0)));
  EXPECT_FALSE(network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(0), 100, 0)));
  EXPECT_FALSE(network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(1), 1501, 0)));
  EXPECT_TRUE(network.send(at_ms(0), Rank(0), frame_between(Rank(0), Rank(1), 1500, 0)));
  EXPECT_EQ(network.refused(), 3U);
}

TEST(LinkChange, parse__reads_all_and_names_what_is_wrong) {
  const LinkChange change = *LinkChange::parse("rate=100M delay=2ms loss=1% up=no");
  EXPECT_EQ(change.rate, Bandwidth::bits_per_second(100'000'000));
  EXPECT_EQ(change.delay, Duration::milliseconds(2));
  EXPECT_DOUBLE_EQ(*change.loss, 0.01);
  EXPECT_EQ(change.up, false);
  EXPECT_EQ(LinkChange::parse("burst=1000:5")->burst->bad, 5);
  for (const char* bad : {"", "rate=fast", "rate=0", "delay=2h", "loss=2", "burst=5", "burst=0:1",
                          "up=maybe", "speed=1", "loss=1% burst=10:2"}) {
    EXPECT_FALSE(LinkChange::parse(bad).ok()) << bad;
  }
}

TEST(Capacity, frames_needed__counts_the_hosts_links) {
  // Three hosts, each 100 Mb/s of 1250-byte frames, and half as many acknowledgements.
  const std::vector<Bandwidth> rates(3, Bandwidth::bits_per_second(100'000'000));
  EXPECT_DOUBLE_EQ(frames_needed(star(), rates, 1250), 3 * 10'000 * 1.5);
  const std::vector<Bandwidth> slower{rates[0], rates[1], Bandwidth::bits_per_second(50'000'000)};
  EXPECT_DOUBLE_EQ(frames_needed(star(), slower, 1250), 2.5 * 10'000 * 1.5);
}

TEST(Stalls, poll__one_host_at_a_time_for_so_long) {
  const Duration every = Duration::milliseconds(100);
  const Duration length = Duration::milliseconds(7);
  Stalls stalls(4, every, length, 5, Time());
  std::array<int, 4> begun{};
  Time last;
  for (int i = 0; i < 4000; ++i) {
    const Time due = stalls.next();
    EXPECT_FALSE(stalls.poll(due - Duration::microseconds(1)));
    const auto start = stalls.poll(due);
    ASSERT_TRUE(start && start->stalled);
    ++begun[start->host.index()];
    EXPECT_EQ(stalls.stalled(), start->host);
    EXPECT_EQ(stalls.next(), due + length);
    EXPECT_EQ(stalls.poll(due + length), (Stalls::Change{.host = start->host, .stalled = false}));
    EXPECT_FALSE(stalls.stalled().valid());
    last = due;
  }
  EXPECT_NEAR(last.since_start().s() / 4000, (every + length).s(), 0.005);
  for (const int count : begun) EXPECT_NEAR(count, 1000, 150);
}

TEST(Aggregators, with_aggregators__keeps_what_is_there_and_adds_a_host_at_the_switch) {
  const topology::Topology before = star();
  std::vector<std::string> switches{"all"};
  const topology::Topology after = with_aggregators(before, switches).value();
  ASSERT_EQ(switches.size(), 1U);
  EXPECT_EQ(after.host_count(), 4);
  for (Rank rank(0); rank.value() < 3; ++rank) {
    EXPECT_EQ(after.node(after.host(rank)).name, before.node(before.host(rank)).name);
  }
  EXPECT_EQ(after.node(after.host(Rank(3))).name, switches[0] + "-aggregator");
  EXPECT_EQ(after.links()[3].spec.rate, Bandwidth::bits_per_second(300'000'000));
  for (const char* wrong : {"nowhere", ""}) {
    std::vector<std::string> names{wrong};
    const auto refused = with_aggregators(before, names);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message().find(switches[0]), std::string::npos);
  }
  std::vector<std::string> twice{switches[0], switches[0]};
  EXPECT_FALSE(with_aggregators(before, twice).ok());
}

TEST(PcapFile, create__refuses_a_pipe_that_is_read) {
  const std::string path = testing::TempDir() + "thalweg-pcap-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  // Without a reader it cannot be opened; with one it would be a place to wait at.
  EXPECT_FALSE(PcapFile::create(path).ok());
  const net::Fd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK));
  const auto refused = PcapFile::create(path);
  unlink(path.c_str());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("is a pipe"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::lab
