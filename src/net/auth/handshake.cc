#include "net/auth/handshake.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/check.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

// The payload of a jumbo frame. Larger packets (loopback) would make a loss bound too coarse.
constexpr std::size_t kMostPayload = 8928;
// A multiple of this holds whole elements of every type.
constexpr std::size_t kPayloadUnit = 8;

UdpOptions udp_options(const EndpointOptions& options) {
  return {.receive_buffer_bytes = options.receive_buffer_bytes,
          .send_buffer_bytes = options.send_buffer_bytes,
          .offload = options.offload,
          .warn = options.warn,
          .keep_port = false};
}

// How many paths this end wants to a peer. Routers choose among routes of equal cost by a hash of
// addresses and ports, so further ports may find further routes: 16 of them put 60 % on one of two
// routes on average. Where no router is between the ends they would find nothing. All paths of 64
// peers together take a quarter of the descriptors that a process may have.
std::size_t paths_to(const SocketAddress& remote, const EndpointOptions& options) {
  constexpr std::size_t kUsual = 16;
  constexpr std::size_t kPart = 256;
  if (options.paths > 0) return options.paths;
  rlimit limit{};
  if (reached_directly(remote) || getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  return std::clamp<std::size_t>(limit.rlim_cur / kPart, 1, kUsual);
}

// Connects socket i to port `first_port` + i of the host, as many as both ends have; closes the
// others.
Status connect_row(std::vector<UdpSocket>& udp, SocketAddress remote, std::uint16_t first_port,
                   std::size_t theirs) {
  while (udp.size() > theirs) udp.pop_back();
  for (std::size_t i = 0; i < udp.size(); ++i) {
    remote.set_port(static_cast<std::uint16_t>(first_port + i));
    THALWEG_TRY_STATUS(udp[i].connect(remote));
  }
  return ok_status();
}

// Bytes of a tensor in one packet to the other end, by our options and the path's MTU.
std::uint32_t payload_of(const UdpSocket& udp, const EndpointOptions& options) {
  const std::size_t overhead = udp.header_bytes() + wire::data_overhead(!options.job_key.empty());
  const std::size_t mtu = std::max(udp.mtu(), overhead + kPayloadUnit);
  const std::size_t most = (mtu - overhead) / kPayloadUnit * kPayloadUnit;
  const std::size_t wanted = options.packet_payload > 0 ? options.packet_payload : kMostPayload;
  return static_cast<std::uint32_t>(std::min(most, wanted));
}

Hello hello_of(const std::vector<UdpSocket>& udp, std::uint32_t payload,
               const EndpointOptions& options, const KeyExchange& keys) {
  Hello hello{.job = options.job_token,
              .udp_port = udp.front().port(),
              .paths = static_cast<std::uint8_t>(udp.size()),
              .payload = payload,
              .name = options.name};
  keys.fill(hello);
  return hello;
}

// One send() takes all bytes: the connection is new, and its buffer is empty.
bool send_all(int fd, std::span<const std::byte> bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// What error messages call the peer.
std::string name_of(const Hello& hello, const SocketAddress& address) {
  return fmt::format("{} ({})", hello.name, address.to_string());
}

Status read_all(int fd, const std::string& address, Time until, std::span<std::byte> out) {
  for (std::size_t size = 0; size < out.size();) {
    if (!wait_for_socket(fd, POLLIN, until)) {
      return Error(ErrorCode::kTimeout,
                   fmt::format("{} did not answer our hello in time", address));
    }
    const ssize_t got = recv(fd, &out[size], out.size() - size, 0);
    if (got == 0) {
      return Error(ErrorCode::kPeerLost,
                   fmt::format("{} closed the connection before its hello", address));
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return system_error(fmt::format("{} broke the connection before its hello", address), errno);
    }
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  return ok_status();
}

Result<Hello> read_answer(std::span<const std::byte, kHelloSize> bytes, const std::string& address,
                          bool keyed) {
  Hello hello;
  if (const wire::WireError error = decode_hello(bytes, hello); error != wire::WireError::kNone) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} is no Thalweg endpoint of this version: its hello is wrong ({})",
                             address, wire::name_of(error)));
  }
  HelloStatus status = hello.status;
  // The other end should have refused. It must not persuade us to go on without a key.
  if (status == HelloStatus::kHello && hello.keyed != keyed) {
    status = keyed ? HelloStatus::kKeyless : HelloStatus::kKeyNeeded;
  }
  if (status != HelloStatus::kHello) {
    return Error(code_of(status), fmt::format("{} refused us: {}", address, describe(status)));
  }
  return hello;
}

// Reads the peer's proof, sends ours, and then checks the peer's.
Status prove(int fd, const std::string& address, Time until, const KeyExchange& keys) {
  wire::SessionProof theirs{};
  THALWEG_TRY_STATUS(read_all(fd, address, until, theirs));
  if (!send_all(fd, keys.our_proof())) {
    return system_error(fmt::format("cannot say hello to {}", address), errno);
  }
  if (keys.proves(theirs)) return ok_status();
  return Error(ErrorCode::kMismatch,
               fmt::format("{}: wrong key: the job key that it holds is not ours", address));
}

}  // namespace

Result<DlcpPeer::Parts> connect_peer(const std::string& address, const EndpointOptions& options,
                                     Time until) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  std::optional<SocketAddress> local;
  if (!options.connect_from.empty()) {
    THALWEG_TRY(local, SocketAddress::numeric(HostPort{options.connect_from, 0}.to_string()));
  }
  THALWEG_TRY(Fd stream, connect_tcp(remote, address, until, local ? &*local : nullptr));
  set_signal_options(stream.get(), static_cast<int>(options.peer_timeout.count()));
  THALWEG_TRY(std::vector<UdpSocket> udp,
              UdpSocket::bind_row(SocketAddress::local_of(stream.get()), paths_to(remote, options),
                                  udp_options(options)));
  // Connected only to learn the path's MTU; the peer's data port is not known yet.
  THALWEG_TRY_STATUS(udp.front().connect(remote));
  const std::uint32_t payload = payload_of(udp.front(), options);
  KeyExchange keys(options, KeyExchange::Role::kConnected);
  const auto hello = encode_hello(hello_of(udp, payload, options, keys));
  if (!send_all(stream.get(), hello)) {
    return system_error(fmt::format("cannot say hello to {}", address), errno);
  }
  std::array<std::byte, kHelloSize> bytes{};
  THALWEG_TRY_STATUS(read_all(stream.get(), address, until, bytes));
  THALWEG_TRY(const Hello answer, read_answer(bytes, address, keys.keyed()));
  std::unique_ptr<PacketGuard> guard;
  if (keys.keyed()) {
    keys.on_hellos(hello, bytes, answer.session);
    THALWEG_TRY_STATUS(prove(stream.get(), address, until, keys));
    guard = keys.guard();
  }
  THALWEG_TRY_STATUS(connect_row(udp, remote, answer.udp_port, answer.paths));
  return DlcpPeer::Parts{std::move(stream), std::move(udp), name_of(answer, remote),
                         std::min(payload, answer.payload), std::move(guard)};
}

IncomingPeer::IncomingPeer(EventLoop& loop, Fd stream, const EndpointOptions& options, Time until)
    : loop_(loop),
      stream_(std::move(stream)),
      options_(options),
      until_(until),
      remote_(SocketAddress::remote_of(stream_.get()).unmapped()),
      keys_(options, KeyExchange::Role::kAccepted) {
  if (!loop_.add(stream_.get(), EPOLLIN, *this).ok()) drop("the system takes no more sockets");
}

void IncomingPeer::forget() {
  if (stream_.valid()) loop_.remove(stream_.get());
}

std::string IncomingPeer::refusal() const {
  return fmt::format("{}: {}", remote_.to_string(), why_);
}

void IncomingPeer::on_ready(int fd, std::uint32_t /*events*/) {
  if (state_ != State::kWaiting) return;
  // Reads no further than this message: later bytes are for the DlcpPeer.
  const ssize_t got = recv(fd, &received_[size_], wanted_ - size_, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    drop("it closed the connection before it had said hello");
    return;
  }
  size_ += static_cast<std::size_t>(got);
  if (size_ < wanted_) return;
  if (parts_ == nullptr) {
    on_hello();
  } else {
    on_proof();
  }
}

void IncomingPeer::on_hello() {
  Hello hello;
  const wire::WireError error = decode_hello(received_, hello);
  if (error == wire::WireError::kVersion) {
    refuse(HelloStatus::kWrongVersion);
  } else if (error != wire::WireError::kNone || hello.status != HelloStatus::kHello ||
             hello.payload < kPayloadUnit) {
    drop("it is no Thalweg endpoint: its hello is wrong");
  } else if (hello.job != options_.job_token) {
    refuse(HelloStatus::kWrongToken);
  } else if (hello.keyed != keys_.keyed()) {
    refuse(hello.keyed ? HelloStatus::kKeyless : HelloStatus::kKeyNeeded);
  } else {
    answer(hello);
  }
}

void IncomingPeer::on_proof() {
  if (keys_.proves(std::span<const std::byte>(received_).first<wire::kSessionProofSize>())) {
    parts_->guard = keys_.guard();
    finish();
  } else {
    drop("wrong key: the job key that it holds is not ours");
  }
}

void IncomingPeer::on_timeout(Time now) {
  if (state_ == State::kWaiting && now >= until_) drop("it did not say hello in time");
}

void IncomingPeer::drop(std::string why) {
  state_ = State::kRefused;
  why_ = std::move(why);
}

void IncomingPeer::refuse(HelloStatus status) {
  drop(describe_refused(status));
  // If this message is lost, the closed connection still tells the peer.
  [[maybe_unused]] const bool sent =
      send_all(stream_.get(), encode_hello({.status = status, .name = options_.name}));
}

void IncomingPeer::answer(const Hello& hello) {
  const SocketAddress local = SocketAddress::local_of(stream_.get()).unmapped();
  const std::size_t paths = std::min<std::size_t>(hello.paths, paths_to(remote_, options_));
  Result<std::vector<UdpSocket>> udp = UdpSocket::bind_row(local, paths, udp_options(options_));
  if (!udp.ok() || !connect_row(*udp, remote_, hello.udp_port, hello.paths).ok()) {
    refuse(HelloStatus::kNoRoom);
    return;
  }
  set_signal_options(stream_.get(), static_cast<int>(options_.peer_timeout.count()));
  const std::uint32_t ours = payload_of(udp->front(), options_);
  const auto bytes = encode_hello(hello_of(*udp, ours, options_, keys_));
  bool sent = send_all(stream_.get(), bytes);
  if (keys_.keyed()) {
    keys_.on_hellos(received_, bytes, hello.session);
    sent = sent && send_all(stream_.get(), keys_.our_proof());
  }
  if (!sent) {
    drop("it broke the connection before our hello");
    return;
  }
  parts_ = std::make_unique<DlcpPeer::Parts>(DlcpPeer::Parts{
      Fd(), std::move(*udp), name_of(hello, remote_), std::min(ours, hello.payload)});
  if (keys_.keyed()) {
    size_ = 0;
    wanted_ = wire::kSessionProofSize;
  } else {
    finish();
  }
}

void IncomingPeer::finish() {
  forget();
  parts_->stream = std::move(stream_);
  state_ = State::kDone;
}

DlcpPeer::Parts IncomingPeer::take() {
  CHECK(state_ == State::kDone);
  return std::move(*parts_);
}

}  // namespace thalweg::net
