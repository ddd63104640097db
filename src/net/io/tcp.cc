#include "net/io/tcp.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(20);
// All ranks of a large job may connect at once. The system may allow fewer (somaxconn); clients
// then try again by themselves.
constexpr int kBacklog = 4096;
// The time for one attempt, long enough for TCP to repeat a lost SYN.
constexpr Duration kAttempt = Duration::milliseconds(5'000);
constexpr std::string_view kUnpaced = "reno";
// TCP_RTO_MIN_US and TCP_DELACK_MAX_US of linux/tcp.h in Linux 6.15 and later (the first: commit
// f38805c5d26f), which Debian 12's headers do not have.
constexpr int kTcpRtoMinUs = 45;
constexpr int kTcpDelackMaxUs = 46;
// 8 ms is the least that a kernel with 250 ticks per second accepts. Acknowledgements wait for at
// most half of it, so that a late one does not cause a repetition.
constexpr int kShortestRtoUs = 8'000;
constexpr int kLatestAckUs = 4'000;
// Bytes that the kernel accepts beyond what it has sent: 2 ms at 1 Gb/s. More would queue in the
// kernel, where urgent frames could not overtake them.
constexpr int kMostUnsent = 256 << 10;
// The kernel's limit on the pace counts payload. The link also carries headers, 52 of 1,500 bytes,
// and acknowledgements of what arrives, 1 to 2 %.
constexpr double kPayloadShare = 0.95;
constexpr std::int64_t kFastestPaced = 2'000'000'000;

// Returns 0, or the errno of the attempt.
int try_connect(const SocketAddress& remote, const SocketAddress* local, Time until, Fd& out) {
  Fd fd(socket(remote.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  if (local != nullptr) {
    // The system then chooses the port in connect(), so that streams to different ends can share
    // one.
    set_option(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(fd.get(), local->get(), local->size()) != 0) return errno;
  }
  if (connect(fd.get(), remote.get(), remote.size()) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for_socket(fd.get(), POLLOUT, until)) return ETIMEDOUT;
    int failure = 0;
    socklen_t size = sizeof(failure);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return failure;
  }
  out = std::move(fd);
  return 0;
}

// Returns 0 or the errno.
int try_listen(const SocketAddress& local, Fd& out) {
  Fd fd(socket(local.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // Allows the port of a process that has just ended, but not a port in use.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), local.get(), local.size()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno;
  }
  out = std::move(fd);
  return 0;
}

}  // namespace

bool wait_for_socket(int fd, short events, Time until) {
  while (true) {
    const double left_ms = std::max(0.0, (until - monotonic_now()).ms());
    pollfd item{fd, events, 0};
    // Rounded up, because a wait that ends too early would be repeated at once.
    const int ready = poll(&item, 1, static_cast<int>(std::min(left_ms + 1, 1e9)));
    if (ready > 0) return true;
    if (ready == 0 && monotonic_now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<Fd> connect_tcp(const SocketAddress& remote, const std::string& name, Time until,
                       const SocketAddress* local, bool listens) {
  const Time started = monotonic_now();
  Fd stream;
  while (true) {
    const int failure =
        try_connect(remote, local, std::min(until, monotonic_now() + kAttempt), stream);
    if (failure == 0) return stream;
    if (listens && failure == ECONNREFUSED) {
      return system_error(fmt::format("cannot connect to {}", name), failure);
    }
    if (monotonic_now() + Duration::milliseconds(kRetryPause.count()) >= until) {
      return system_error(
          fmt::format("cannot connect to {} within {}", name, to_human(monotonic_now() - started)),
          failure);
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

bool is_within_host(int fd) {
  SocketAddress here = SocketAddress::local_of(fd).unmapped();
  SocketAddress there = SocketAddress::remote_of(fd).unmapped();
  here.set_port(0);
  there.set_port(0);
  return here.to_string() == there.to_string();
}

void repeat_soon(int fd) {
  set_option(fd, IPPROTO_TCP, kTcpRtoMinUs, kShortestRtoUs);
  set_option(fd, IPPROTO_TCP, kTcpDelackMaxUs, kLatestAckUs);
}

void prepare_stream(int fd) {
  repeat_soon(fd);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Nothing can be congested within a host, and a congestion control that paces, as BBR does, only
  // delays bytes. Every kernel has Reno.
  if (is_within_host(fd)) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(),
               static_cast<socklen_t>(kUnpaced.size()));
  } else {
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostUnsent);
  }
}

std::int64_t line_bps_of(double gbps) {
  const double bps = gbps * 1e9;
  return bps >= 1 && bps <= static_cast<double>(kFastestPaced) ? static_cast<std::int64_t>(bps) : 0;
}

void keep_to_line_rate(int fd, std::int64_t line_bps) {
  if (line_bps <= 0) line_bps = interface_bps(SocketAddress::local_of(fd));
  if (line_bps <= 0 || line_bps > kFastestPaced || is_within_host(fd)) return;
  const auto bytes_per_second =
      static_cast<std::uint32_t>(static_cast<double>(line_bps) / 8 * kPayloadShare);
  setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof(bytes_per_second));
}

Result<Fd> listen_tcp(const std::string& address) {
  const bool everywhere = address.starts_with("*:");
  const std::string port = everywhere ? address.substr(1) : "";
  // "[::]" accepts IPv4 as well, if the system has IPv6 at all.
  THALWEG_TRY(SocketAddress local, SocketAddress::resolve(everywhere ? "[::]" + port : address));
  Fd fd;
  int failure = try_listen(local, fd);
  if (everywhere && (failure == EAFNOSUPPORT || failure == EADDRNOTAVAIL)) {
    THALWEG_TRY(local, SocketAddress::resolve("0.0.0.0" + port));
    failure = try_listen(local, fd);
  }
  if (failure != 0) return system_error(fmt::format("cannot listen at {}", address), failure);
  return fd;
}

Duration shortest_round_trip(int fd) {
  // tcpi_min_rtt of linux/tcp.h, in microseconds. The tcp_info of glibc ends before it.
  constexpr std::size_t kAt = 148;
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::array<std::byte, kAt + sizeof(std::uint32_t)> info{};
  socklen_t size = info.size();
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.data(), &size) != 0 || size < info.size()) {
    return {};
  }
  std::uint32_t shortest = 0;
  std::memcpy(&shortest, info.data() + kAt, sizeof shortest);
  return shortest == kNone ? Duration() : Duration::microseconds(shortest);
}

void set_signal_options(int fd, int timeout_ms) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  constexpr int kProbes = 4;
  const int seconds = std::max(1, timeout_ms / 1000 / (kProbes + 1));
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  repeat_soon(fd);
}

void set_dscp(int fd, std::uint8_t dscp) {
  constexpr int kEcnBits = 2;
  const int traffic_class = dscp << kEcnBits;
  // An IPv6 socket may be connected over IPv4, and then needs the first as well.
  set_option(fd, IPPROTO_IP, IP_TOS, traffic_class);
  set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
}

}  // namespace thalweg::net
