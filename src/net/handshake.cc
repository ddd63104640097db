#include "net/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/address.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

// A jumbo frame's payload. Longer ones (loopback) would make a loss bound too coarse.
constexpr std::size_t kMostPayload = 8928;
// Whole elements of every type.
constexpr std::size_t kPayloadUnit = 8;

UdpOptions udp_options(const EndpointOptions& options) {
  return {options.receive_buffer_bytes, options.send_buffer_bytes, options.offload, options.warn};
}

// What a packet to the other end may carry of a tensor, by our options and the path's MTU.
std::uint32_t payload_of(const UdpSocket& udp, const EndpointOptions& options) {
  const std::size_t overhead = udp.header_bytes() + data_overhead(false);
  const std::size_t mtu = std::max(udp.mtu(), overhead + kPayloadUnit);
  const std::size_t most = (mtu - overhead) / kPayloadUnit * kPayloadUnit;
  const std::size_t wanted = options.packet_payload > 0 ? options.packet_payload : kMostPayload;
  return static_cast<std::uint32_t>(std::min(most, wanted));
}

Hello hello_of(const UdpSocket& udp, std::uint32_t payload, const EndpointOptions& options) {
  return {HelloStatus::kHello, options.job_token, udp.port(), payload, options.name};
}

// How the peer is called in errors.
std::string name_of(const Hello& hello, const SocketAddress& address) {
  return fmt::format("{} ({})", hello.name, address.to_string());
}

Result<Hello> read_answer(int fd, const std::string& address, Time until) {
  std::array<std::byte, kHelloSize> bytes{};
  for (std::size_t size = 0; size < bytes.size();) {
    if (!wait_for_socket(fd, POLLIN, until)) {
      return Error(fmt::format("{} did not answer our hello in time", address));
    }
    const ssize_t got = recv(fd, &bytes[size], bytes.size() - size, 0);
    if (got == 0) return Error(fmt::format("{} closed the connection before its hello", address));
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return system_error(fmt::format("{} broke the connection before its hello", address), errno);
    }
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  Hello hello;
  if (const WireError error = decode_hello(bytes, hello); error != WireError::kNone) {
    return Error(fmt::format("{} is no Thalweg endpoint of this version: its hello is wrong ({})",
                             address, name_of(error)));
  }
  if (hello.status != HelloStatus::kHello) {
    return Error(fmt::format("{} refused us: {}", address, describe(hello.status)));
  }
  return hello;
}

}  // namespace

Result<Link::Parts> connect_peer(const std::string& address, const EndpointOptions& options,
                                 Time until) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  THALWEG_TRY(Fd stream, connect_tcp(remote, address, until));
  set_signal_options(stream.get(), static_cast<int>(options.peer_timeout.count()));
  THALWEG_TRY(UdpSocket udp,
              UdpSocket::bind(SocketAddress::local_of(stream.get()), udp_options(options)));
  // For the MTU of the path; the peer's data port is not known yet.
  THALWEG_TRY_STATUS(udp.connect(remote));
  const std::uint32_t payload = payload_of(udp, options);
  const auto hello = encode_hello(hello_of(udp, payload, options));
  if (send(stream.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size())) {
    return system_error(fmt::format("cannot say hello to {}", address), errno);
  }
  THALWEG_TRY(const Hello answer, read_answer(stream.get(), address, until));
  SocketAddress data = remote;
  data.set_port(answer.udp_port);
  THALWEG_TRY_STATUS(udp.connect(data));
  return Link::Parts{std::move(stream), std::move(udp), name_of(answer, remote),
                     std::min(payload, answer.payload)};
}

IncomingPeer::IncomingPeer(EventLoop& loop, Fd stream, const EndpointOptions& options, Time until)
    : loop_(loop), stream_(std::move(stream)), options_(options), until_(until) {
  if (!loop_.add(stream_.get(), EPOLLIN, *this).ok()) state_ = State::kRefused;
}

void IncomingPeer::forget() {
  if (stream_.valid()) loop_.remove(stream_.get());
}

void IncomingPeer::on_ready(int fd, std::uint32_t /*events*/) {
  if (state_ != State::kWaiting) return;
  const ssize_t got = recv(fd, &received_[size_], received_.size() - size_, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    state_ = State::kRefused;
    return;
  }
  size_ += static_cast<std::size_t>(got);
  if (size_ < received_.size()) return;
  Hello hello;
  const WireError error = decode_hello(received_, hello);
  if (error == WireError::kVersion) {
    refuse(HelloStatus::kWrongVersion);
  } else if (error != WireError::kNone || hello.status != HelloStatus::kHello ||
             hello.payload < kPayloadUnit) {
    state_ = State::kRefused;
  } else if (hello.job != options_.job_token) {
    refuse(HelloStatus::kWrongToken);
  } else {
    answer(hello);
  }
}

void IncomingPeer::on_timeout(Time now) {
  if (state_ == State::kWaiting && now >= until_) state_ = State::kRefused;
}

void IncomingPeer::refuse(HelloStatus status) {
  state_ = State::kRefused;
  const auto bytes = encode_hello({status, 0, 0, 0, options_.name});
  // If it does not get there, the closed connection does.
  [[maybe_unused]] const ssize_t sent =
      send(stream_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void IncomingPeer::answer(const Hello& hello) {
  state_ = State::kRefused;
  const SocketAddress remote = SocketAddress::remote_of(stream_.get()).unmapped();
  SocketAddress data = remote;
  data.set_port(hello.udp_port);
  const SocketAddress local = SocketAddress::local_of(stream_.get()).unmapped();
  Result<UdpSocket> udp = UdpSocket::bind(local, udp_options(options_));
  if (!udp.ok() || !udp->connect(data).ok()) {
    refuse(HelloStatus::kNoRoom);
    return;
  }
  set_signal_options(stream_.get(), static_cast<int>(options_.peer_timeout.count()));
  const std::uint32_t ours = payload_of(*udp, options_);
  const auto bytes = encode_hello(hello_of(*udp, ours, options_));
  if (send(stream_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(bytes.size())) {
    return;
  }
  forget();
  parts_ = std::make_unique<Link::Parts>(Link::Parts{
      std::move(stream_), std::move(*udp), name_of(hello, remote), std::min(ours, hello.payload)});
  state_ = State::kDone;
}

Link::Parts IncomingPeer::take() {
  CHECK(parts_ != nullptr);
  return std::move(*parts_);
}

}  // namespace thalweg
