#include "net/store/token_desk.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "wire/byte_io.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostAskers = 1024;
// How long a process that asks waits for a desk of its own user, which answers at once unless its
// process is stopped.
constexpr Duration kAnswerTime = Duration::milliseconds(2'000);

// The address of an abstract socket, whose first byte is 0, and its size.
struct DeskAddress {
  explicit DeskAddress(const std::string& name) {
    CHECK(name.size() <= kMostName);
    where.sun_family = AF_UNIX;
    std::ranges::copy(name, std::next(std::begin(where.sun_path)));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&where); }
  sockaddr_un where = {};
  socklen_t size = 0;
};

bool is_of_own_user(int fd) {
  ucred other{};
  socklen_t size = sizeof(other);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

Fd unix_socket() { return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

TokenDesk::TokenDesk(std::unique_ptr<EventLoop> loop, Fd listener, wire::JobToken token)
    : loop_(std::move(loop)), listener_(std::move(listener), kMostAskers), token_(token) {}

TokenDesk::~TokenDesk() {
  loop_->stop();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<TokenDesk>> TokenDesk::open(const std::string& name, wire::JobToken token) {
  Fd listener = unix_socket();
  const DeskAddress address(name);
  if (!listener.valid() || bind(listener.get(), address.get(), address.size) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return system_error(fmt::format("cannot hand out the job's token on this host, at '@{}' (with "
                                    "THALWEG_TOKEN on all ranks nobody has to)",
                                    name),
                        errno);
  }
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  std::unique_ptr<TokenDesk> desk(new TokenDesk(std::move(loop), std::move(listener), token));
  THALWEG_TRY_STATUS(desk->loop_->add(desk->listener_.fd(), EPOLLIN, *desk));
  desk->thread_ = std::thread([raw = desk.get()] {
    raw->loop_->run([]() -> std::optional<Time> { return std::nullopt; });
  });
  return desk;
}

void TokenDesk::on_ready(int /*fd*/, std::uint32_t /*events*/) {
  const auto answer = [this](const Fd& asker) {
    if (!is_of_own_user(asker.get())) return;
    std::array<std::byte, sizeof(wire::JobToken)> bytes;
    wire::ByteWriter(bytes).put(token_);
    // The answer fits the empty buffer of the socket.
    static_cast<void>(send(asker.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  };
  listener_.accept_all([&](Fd asker) { answer(asker); }, [](int /*fd*/) {});
}

std::optional<wire::JobToken> TokenDesk::ask(const std::string& name) {
  const Fd fd = unix_socket();
  const DeskAddress address(name);
  const Time until = monotonic_now() + kAnswerTime;
  if (!fd.valid()) return std::nullopt;
  // EAGAIN: more processes ask at this moment than the desk's queue holds.
  while (connect(fd.get(), address.get(), address.size) != 0) {
    if (errno != EAGAIN && errno != EINTR) return std::nullopt;
    if (monotonic_now() >= until) return std::nullopt;
    poll(nullptr, 0, 1);
  }
  if (!is_of_own_user(fd.get())) return std::nullopt;
  std::array<std::byte, sizeof(wire::JobToken)> bytes;
  for (std::size_t had = 0; had < bytes.size();) {
    if (!wait_for_socket(fd.get(), POLLIN, until)) return std::nullopt;
    const ssize_t got = recv(fd.get(), &bytes[had], bytes.size() - had, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
    had += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  return wire::ByteReader(bytes).get<wire::JobToken>();
}

}  // namespace thalweg::net
