// Addresses, hellos, UDP sockets and the loop, each alone.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "net/auth/hello.h"
#include "net/io/address.h"
#include "net/io/event_loop.h"
#include "net/io/system.h"
#include "net/io/udp_socket.h"
#include "net/net_pair.h"

namespace thalweg::net {
namespace {

TEST(SocketAddress, resolve__both_families) {
  EXPECT_EQ(SocketAddress::resolve("127.0.0.1:80")->to_string(), "127.0.0.1:80");
  EXPECT_EQ(SocketAddress::resolve("[::1]:0")->to_string(), "[::1]:0");
  EXPECT_EQ(SocketAddress::resolve("[::ffff:1.2.3.4]:5")->unmapped().to_string(), "1.2.3.4:5");
  EXPECT_EQ(SocketAddress::resolve("[::1]:5")->unmapped().to_string(), "[::1]:5");
}

TEST(SocketAddress, resolve__bad_text_is_named) {
  for (const char* text : {"", ":", "a", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:70000",
                           "1.2.3.4:-1", "::1:80", "[::1]", "1.2.3.4:8 "}) {
    const auto address = SocketAddress::resolve(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_TRUE(says(address.error().message(), std::string("'") + text + "'"));
  }
}

TEST(Hello, encode_decode__same) {
  Hello hello{.job = 0x0102'0304'0506'0708, .udp_port = 4242, .payload = 1400, .name = "worker 3"};
  Hello out;
  ASSERT_EQ(decode_hello(encode_hello(hello), out), wire::WireError::kNone);
  EXPECT_EQ(out, hello);
  hello.paths = 8;
  ASSERT_EQ(decode_hello(encode_hello(hello), out), wire::WireError::kNone);
  EXPECT_EQ(out, hello);
  hello.keyed = true;
  hello.session = 0x1112'1314'1516'1718;
  ASSERT_EQ(decode_hello(encode_hello(hello), out), wire::WireError::kNone);
  EXPECT_EQ(out, hello);
}

TEST(Hello, decode__refuses_what_has_no_meaning) {
  const auto good = encode_hello({.job = 1, .udp_port = 2, .payload = 3, .name = "ab"});
  Hello out;
  const auto with = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return decode_hello(bytes, out);
  };
  EXPECT_EQ(with(0, 'x'), wire::WireError::kKind);
  EXPECT_EQ(with(4, 2), wire::WireError::kVersion);
  EXPECT_EQ(with(5, 9), wire::WireError::kField);
  EXPECT_EQ(with(6, 0), wire::WireError::kField) << "no data port";
  EXPECT_EQ(with(20, 2), wire::WireError::kReserved);
  EXPECT_EQ(with(21, 31), wire::WireError::kNone);
  EXPECT_EQ(with(21, 32), wire::WireError::kField) << "33 paths";
  EXPECT_EQ(with(22, 1), wire::WireError::kReserved);
  const auto last = encode_hello({.job = 1, .udp_port = 65'535, .paths = 2, .name = "ab"});
  EXPECT_EQ(decode_hello(last, out), wire::WireError::kField) << "no port follows the last one";
  EXPECT_EQ(with(24, 1), wire::WireError::kReserved) << "a session without a key";
  EXPECT_EQ(with(32, 64), wire::WireError::kLength);
  EXPECT_EQ(with(33, 27), wire::WireError::kField) << "a terminal's escape";
  EXPECT_EQ(with(95, 1), wire::WireError::kReserved) << "behind the name";
}

struct UdpPair {
  UdpSocket a;
  UdpSocket b;
  static UdpPair make(bool offload) {
    const SocketAddress local = *SocketAddress::resolve("127.0.0.1:0");
    const UdpOptions options{1 << 20, 1 << 20, offload, {}};
    UdpPair pair{*UdpSocket::bind(local, options), *UdpSocket::bind(local, options)};
    EXPECT_TRUE(pair.a.connect(SocketAddress::local_of(pair.b.fd())).ok());
    EXPECT_TRUE(pair.b.connect(SocketAddress::local_of(pair.a.fd())).ok());
    return pair;
  }
};

TEST(UdpSocket, send_receive__packets_and_marks_with_and_without_offload) {
  for (const bool offload : {true, false}) {
    SCOPED_TRACE(offload);
    UdpPair pair = UdpPair::make(offload);
    constexpr std::size_t kPackets = 30;
    std::vector<std::array<std::byte, 10>> headers(kPackets);
    std::vector<std::vector<std::byte>> payloads;
    std::vector<UdpPacket> packets;
    for (std::size_t i = 0; i < kPackets; ++i) {
      headers[i].fill(static_cast<std::byte>(i));
      payloads.emplace_back(i + 1 == kPackets ? 7 : 500, static_cast<std::byte>(100 + i));
      packets.push_back({headers[i], payloads[i]});
    }
    constexpr std::uint8_t kMarked = 46 << 2 | 3;
    ASSERT_EQ(pair.a.send(packets, kMarked), UdpSocket::Sent::kAll);
    EXPECT_EQ(pair.a.send_calls(), 1U);
    std::size_t next = 0;
    UdpSocket::Arrival arrival;
    while (next < kPackets) {
      pollfd item{pair.b.fd(), POLLIN, 0};
      ASSERT_GT(poll(&item, 1, 2000), 0);
      ASSERT_EQ(pair.b.receive(arrival), UdpSocket::Received::kPackets);
      EXPECT_TRUE(arrival.marked);
      for (auto left = arrival.bytes; !left.empty(); ++next) {
        const auto packet = left.first(std::min(arrival.packet_size, left.size()));
        ASSERT_LT(next, kPackets);
        ASSERT_EQ(packet.size(), packets[next].size());
        EXPECT_EQ(std::memcmp(packet.data(), headers[next].data(), 10), 0);
        EXPECT_EQ(std::memcmp(packet.data() + 10, payloads[next].data(), payloads[next].size()), 0);
        left = left.subspan(packet.size());
      }
    }
    EXPECT_EQ(pair.b.receive(arrival), UdpSocket::Received::kNothing);
    ASSERT_EQ(pair.b.send(std::span(packets).first(1), 46 << 2), UdpSocket::Sent::kAll);
    pollfd item{pair.a.fd(), POLLIN, 0};
    ASSERT_GT(poll(&item, 1, 2000), 0);
    ASSERT_EQ(pair.a.receive(arrival), UdpSocket::Received::kPackets);
    EXPECT_FALSE(arrival.marked);
  }
}

TEST(UdpSocket, bind_row__ports_follow_each_other) {
  const SocketAddress local = *SocketAddress::resolve("127.0.0.1:0");
  const Result<std::vector<UdpSocket>> row = UdpSocket::bind_row(local, 8, {});
  ASSERT_TRUE(row.ok());
  ASSERT_EQ(row->size(), 8U);
  for (std::size_t i = 1; i < row->size(); ++i) {
    EXPECT_EQ((*row)[i].port(), row->front().port() + i);
  }
}

TEST(SocketAddress, reached_directly__this_host_and_the_networks_of_its_interfaces) {
  EXPECT_TRUE(reached_directly(*SocketAddress::numeric("127.8.7.6:1")));
  EXPECT_TRUE(reached_directly(*SocketAddress::numeric("[::1]:1")));
  EXPECT_TRUE(reached_directly(*SocketAddress::numeric("[::ffff:127.0.0.1]:1")));
  for (const SocketAddress& own : interface_addresses()) EXPECT_TRUE(reached_directly(own));
  // Addresses of documentation (RFC 5737 and 3849), which no interface has.
  EXPECT_FALSE(reached_directly(*SocketAddress::numeric("203.0.113.7:1")));
  EXPECT_FALSE(reached_directly(*SocketAddress::numeric("[2001:db8::7]:1")));
}

TEST(UdpSocket, send__a_closed_port_is_a_loss_and_no_more) {
  UdpPair pair = UdpPair::make(true);
  const std::array<std::byte, 8> bytes{};
  {
    const UdpSocket gone = std::move(pair.b);
  }
  for (int i = 0; i < 5; ++i) {
    const UdpPacket packet{bytes, bytes};
    const auto sent = pair.a.send(std::span(&packet, 1), 0);
    EXPECT_TRUE(sent == UdpSocket::Sent::kAll || sent == UdpSocket::Sent::kLost);
  }
}

TEST(UdpSocket, send__beyond_the_mtu_is_told) {
  UdpPair pair = UdpPair::make(true);
  const std::vector<std::byte> bytes(70'000);
  const UdpPacket packet{std::span(bytes).first(10), std::span(bytes).subspan(10)};
  EXPECT_EQ(pair.a.send(std::span(&packet, 1), 0), UdpSocket::Sent::kTooBig);
}

TEST(UdpSocket, bind__small_buffers_are_warned_of_with_the_sysctl) {
  std::vector<std::string> warnings;
  const UdpOptions options{std::size_t{1} << 31, 1 << 16, true,
                           [&](const std::string& text) { warnings.push_back(text); }};
  ASSERT_TRUE(UdpSocket::bind(*SocketAddress::resolve("127.0.0.1:0"), options).ok());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(says(warnings[0], "sysctl -w net.core.rmem_max="));
}

TEST(EventLoop, run__sleeps_until_the_time_and_no_longer) {
  auto loop = EventLoop::make();
  ASSERT_TRUE(loop.ok());
  int turns = 0;
  Time start;
  Time end;
  (*loop)->run([&]() -> std::optional<Time> {
    if (++turns == 1) {
      start = monotonic_now();
      return start + Duration::milliseconds(20);
    }
    end = monotonic_now();
    (*loop)->stop();
    return std::nullopt;
  });
  EXPECT_EQ(turns, 2);
  EXPECT_GE(end - start, Duration::milliseconds(20));
  EXPECT_LT(end - start, Duration::milliseconds(2000));
}

TEST(EventLoop, post__runs_all_in_order_or_says_no) {
  auto loop = EventLoop::make();
  std::vector<int> ran;
  std::thread thread([&] { (*loop)->run([] { return std::optional<Time>(); }); });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE((*loop)->post([&, i] { ran.push_back(i); }));
  (*loop)->stop();
  thread.join();
  ASSERT_EQ(ran.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(ran));
  EXPECT_FALSE((*loop)->post([] {}));
}

}  // namespace
}  // namespace thalweg::net
