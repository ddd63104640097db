// A peer of an endpoint made by hand: it greets correctly, and then sends what a test wants.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "net/auth/hello.h"
#include "net/auth/key_exchange.h"
#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/net_pair.h"

namespace thalweg::net {

// A plain TCP connection to an endpoint.
inline Fd raw_connection(const std::string& address) {
  const SocketAddress remote = *SocketAddress::resolve(address);
  Fd fd(socket(remote.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), remote.get(), remote.size()), 0);
  return fd;
}

inline void send_raw(int fd, std::span<const std::byte> bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// Blocks until all bytes have arrived.
inline void receive_raw(int fd, std::span<std::byte> out) {
  EXPECT_EQ(recv(fd, out.data(), out.size(), MSG_WAITALL), static_cast<ssize_t>(out.size()));
}

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

class RawPeer {
 public:
  // Connects to an endpoint on 127.0.0.1 and says hello, with the token and key of the options.
  RawPeer(const std::string& address, const EndpointOptions& options)
      : stream_(raw_connection(address)),
        udp_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
        keys_(options, KeyExchange::Role::kConnected) {
    const SocketAddress any = *SocketAddress::resolve("127.0.0.1:0");
    EXPECT_EQ(bind(udp_.get(), any.get(), any.size()), 0);
    Hello ours{.job = options.job_token,
               .udp_port = SocketAddress::local_of(udp_.get()).port(),
               .payload = options.packet_payload,
               .name = options.name};
    keys_.fill(ours);
    const auto hello = encode_hello(ours);
    send_raw(stream_.get(), hello);
    std::array<std::byte, kHelloSize> answer{};
    receive_raw(stream_.get(), answer);
    Hello theirs;
    EXPECT_EQ(decode_hello(answer, theirs), wire::WireError::kNone);
    EXPECT_EQ(theirs.status, HelloStatus::kHello);
    SocketAddress data = any;
    data.set_port(theirs.udp_port);
    EXPECT_EQ(connect(udp_.get(), data.get(), data.size()), 0);
    if (!keys_.keyed()) return;
    keys_.on_hellos(hello, answer, theirs.session);
    wire::SessionProof proof{};
    receive_raw(stream_.get(), proof);
    EXPECT_TRUE(keys_.proves(proof));
    send_raw(stream_.get(), keys_.our_proof());
    guard_ = keys_.guard();
  }

  [[nodiscard]] int stream() const { return stream_.get(); }
  [[nodiscard]] int udp() const { return udp_.get(); }
  // Null without a key.
  [[nodiscard]] PacketGuard* guard() const { return guard_.get(); }
  void send_data(std::span<const std::byte> packet) const { send_raw(udp_.get(), packet); }

 private:
  Fd stream_;
  Fd udp_;
  KeyExchange keys_;
  std::unique_ptr<PacketGuard> guard_;
};

}  // namespace thalweg::net
