// Settings of TCP streams, as the kernel has them.
#include "net/io/tcp.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "net/group/streams/connection.h"
#include "net/group/streams/lanes.h"
#include "net/io/address.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

std::uint64_t pace_of(int fd) {
  std::uint64_t rate = 0;
  socklen_t size = sizeof(rate);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
  return rate;
}

// A stream from 127.0.0.1 to another address of the loopback network, which counts as another host,
// or to the same one.
Fd stream_to(const std::string& host, Fd& listener) {
  listener = *listen_tcp(host + ":0");
  const SocketAddress here = *SocketAddress::resolve("127.0.0.1:0");
  const SocketAddress there = SocketAddress::local_of(listener.get());
  return *connect_tcp(there, "test", monotonic_now() + Duration::milliseconds(5'000), &here, true);
}

TEST(LineRate, stream_to_another_host__sends_payload_at_less_than_the_rate) {
  Fd listener;
  const Fd stream = stream_to("127.0.0.2", listener);
  EXPECT_EQ(pace_of(stream.get()), kNoLimit);
  keep_to_line_rate(stream.get(), 100'000'000);
  EXPECT_EQ(pace_of(stream.get()), 11'875'000U);
}

TEST(LineRate, unknown_or_fast__has_no_limit) {
  Fd listener;
  const Fd stream = stream_to("127.0.0.2", listener);
  keep_to_line_rate(stream.get(), 0);
  EXPECT_EQ(pace_of(stream.get()), kNoLimit);
  keep_to_line_rate(stream.get(), 10'000'000'000);
  EXPECT_EQ(pace_of(stream.get()), kNoLimit);
}

TEST(LineRate, within_a_host__has_no_limit) {
  Fd listener;
  const Fd stream = stream_to("127.0.0.1", listener);
  keep_to_line_rate(stream.get(), 100'000'000);
  EXPECT_EQ(pace_of(stream.get()), kNoLimit);
}

TEST(LaneBacklog, two_ms_of_the_rate__within_limits) {
  const auto backlog_at = [](std::int64_t line_bps) {
    Fd listener;
    const Fd stream = stream_to("127.0.0.2", listener);
    keep_to_line_rate(stream.get(), line_bps);
    return lane_backlog(stream.get());
  };
  EXPECT_EQ(backlog_at(100'000'000), 23'750);
  EXPECT_EQ(backlog_at(1'000'000), 8 << 10);
  EXPECT_EQ(backlog_at(2'000'000'000), 64 << 10);
  EXPECT_EQ(backlog_at(0), 64 << 10);  // the rate is not known
}

TEST(LongestFrame, to_another_host__leaves_each_lane_a_part_of_the_transfer) {
  Fd listener;
  Connection connection(Rank(1));
  connection.attach(stream_to("127.0.0.2", listener));
  ASSERT_TRUE(connection.add_lane(1, stream_to("127.0.0.2", listener), {}));
  EXPECT_EQ(connection.longest_frame(170'000), 8U << 10);
  EXPECT_EQ(connection.longest_frame(1 << 20), 32U << 10);
  EXPECT_EQ(connection.longest_frame(64 << 20), 128U << 10);
}

TEST(LaneBacklog, lanes_of_different_rates__each_its_own) {
  Fd listener;
  Connection connection(Rank(1));
  connection.attach(stream_to("127.0.0.2", listener));
  std::uint32_t number = 0;
  for (const std::int64_t line_bps : {1'000'000'000, 100'000'000}) {
    Fd lane = stream_to("127.0.0.2", listener);
    keep_to_line_rate(lane.get(), line_bps);
    ASSERT_TRUE(connection.add_lane(++number, std::move(lane), {}));
  }
  EXPECT_EQ(connection.lanes()[0].backlog, 64 << 10);
  EXPECT_EQ(connection.lanes()[1].backlog, 23'750);
}

}  // namespace
}  // namespace thalweg::net
