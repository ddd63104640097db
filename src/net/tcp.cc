#include "net/tcp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "net/system.h"

namespace thalweg {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(20);
// As many as a large job's ranks that connect at once; the system may allow fewer (somaxconn), and
// clients then try again by themselves.
constexpr int kBacklog = 4096;
// One attempt; a lost SYN is repeated within it.
constexpr Duration kAttempt = Duration::milliseconds(5'000);
constexpr std::string_view kUnpaced = "reno";
// TCP_RTO_MIN_US and TCP_DELACK_MAX_US of linux/tcp.h in Linux 6.15 and later (the first: commit
// f38805c5d26f), which Debian 12's headers do not have.
constexpr int kTcpRtoMinUs = 45;
constexpr int kTcpDelackMaxUs = 46;
// The least that a kernel of 250 ticks a second takes, and half of it: what is only acknowledged
// late is not to be repeated.
constexpr int kShortestRtoUs = 8'000;
constexpr int kLatestAckUs = 4'000;
// What the system takes ahead of what it sends: 2 ms of 1 Gb/s. What is more urgent overtakes the
// rest, which still waits here.
constexpr int kMostUnsent = 256 << 10;

// 0, or the errno of the attempt.
int try_connect(const SocketAddress& remote, const SocketAddress* local, Time until, Fd& out) {
  Fd fd(socket(remote.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  if (local != nullptr) {
    // The port is chosen when the other end is known, so that many streams can have the same.
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

// 0, or the errno.
int try_listen(const SocketAddress& local, Fd& out) {
  Fd fd(socket(local.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // A port of a process that has just ended may be taken again; one in use may not.
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
    // Rounded up: a wait that ends before its time would be repeated at once.
    const int ready = poll(&item, 1, static_cast<int>(std::min(left_ms + 1, 1e9)));
    if (ready > 0) return true;
    if (ready == 0 && monotonic_now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<Fd> connect_tcp(const SocketAddress& remote, const std::string& name, Time until,
                       const SocketAddress* local) {
  const Time started = monotonic_now();
  Fd stream;
  while (true) {
    const int failure =
        try_connect(remote, local, std::min(until, monotonic_now() + kAttempt), stream);
    if (failure == 0) return stream;
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
  // Every kernel has it. Within a host nothing can be congested, and a congestion control that
  // paces, as BBR does, only makes bytes wait.
  if (is_within_host(fd)) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(),
               static_cast<socklen_t>(kUnpaced.size()));
  } else {
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostUnsent);
  }
}

Result<Fd> listen_tcp(const std::string& address) {
  const bool everywhere = address.starts_with("*:");
  const std::string port = everywhere ? address.substr(1) : "";
  // "[::]" takes IPv4 too, where there is IPv6 at all.
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

}  // namespace thalweg
