// What the engine asks epoll for, and what it does with the events.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/check.h"
#include "net/group/drive/engine.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr int kEventsPerWait = 64;
// How long what a peer has sent is kept after its end.
constexpr Duration kHangUpTime = Duration::milliseconds(250);

}  // namespace

// A peer has ended, while what it sent belongs to an operation that has not begun here, or is on a
// lane. The peer may have done all its part and left. Then its data is still read.
void Engine::hang_up(Connection& connection, bool moved) {
  const Time now = monotonic_now();
  if (!connection.hung_up || moved) connection.hung_up = now;
  if (now < *connection.hung_up + kHangUpTime) return;
  if (!connection.stalled()) {
    connection.break_off("its connection closed");
    return;
  }
  // Its last words may be behind the frame that waits.
  core_.on_hang_up(connection.peer());
  connection.resume(*this);
}

bool Engine::handle_events(int timeout_ms) {
  std::array<epoll_event, kEventsPerWait> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (const auto listener = std::ranges::find(listeners_, fd, &TcpListener::fd);
        listener != listeners_.end()) {
      accept_streams(*listener);
      continue;
    }
    const auto connection =
        std::ranges::find_if(open_, [&](const Connection* c) { return c->owns(fd); });
    if (connection != open_.end()) {
      if ((*connection)->reads_shared()) (*connection)->hear_bells(buffer_);
      const bool moved = (*connection)->read(buffer_, *this);
      const bool waits = (*connection)->stalled() || (*connection)->source() != 0;
      const bool ended = fd == (*connection)->fd() && (events[static_cast<std::size_t>(i)].events &
                                                       (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
      if (waits && ended && !(*connection)->reads_shared()) hang_up(**connection, moved);
      if ((events[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) touch(**connection);
      look_over(**connection);
      watch(**connection);
      continue;
    }
    const auto newcomer = std::ranges::find_if(
        newcomers_, [&](const Newcomer& n) { return n.fd.valid() && n.fd.get() == fd; });
    if (newcomer != newcomers_.end()) {
      greet(static_cast<std::size_t>(newcomer - newcomers_.begin()));
    }
  }
  std::erase_if(open_, [](const Connection* c) { return !c->connected(); });
  std::erase_if(newcomers_, [](const Newcomer& n) { return n.over; });
  return count > 0;
}

// Ends are handled here, because a connection must not disappear while it is being read.
void Engine::look_over(Connection& connection) {
  if (!connection.over().empty()) core_.on_closed(connection.peer(), connection.over());
}

void Engine::watch(Connection& connection) {
  if (!connection.connected()) return;
  watch_lanes(connection);
  const bool frames =
      !connection.reads_shared() && !connection.stalled() && connection.source() == 0;
  const bool bells = connection.reads_shared() && !connection.deaf();
  // A stream that is about to move is not watched at all.
  const bool still = connection.bytes_of(0).moving();
  const bool room = !connection.writes_shared() && connection.first_blocked();
  // While a lane is read, the first stream is watched only for its end.
  const bool end = connection.source() != 0;
  const std::uint32_t events = (frames || bells ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (end ? static_cast<std::uint32_t>(EPOLLRDHUP) : 0U) |
                               (room ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  const std::uint32_t wanted = still ? Connection::kUnwatched : events;
  const std::uint32_t before = std::exchange(connection.watching, wanted);
  if (wanted == before) return;
  epoll_event event{};
  event.events = wanted;
  event.data.fd = connection.fd();
  // A socket that has ended would report that again and again.
  const int added = before == Connection::kUnwatched ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const int change = connection.deaf() || still ? EPOLL_CTL_DEL : added;
  epoll_ctl(epoll_.get(), change, connection.fd(), &event);
}

// A lane is watched only while it is to be read or written. Otherwise its end would be reported
// again and again.
void Engine::watch_lanes(Connection& connection) {
  std::uint32_t number = 0;
  for (Lane& lane : connection.lanes()) {
    ++number;
    const bool payload =
        (connection.source() == number && !connection.stalled()) || !lane.answer_due.empty();
    const std::uint32_t events = (payload ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                                 (lane.blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    const std::uint32_t wanted = lane.bytes.moving() ? 0U : events;
    const std::uint32_t before = std::exchange(lane.watching, lane.fd.valid() ? wanted : 0U);
    if (lane.watching == before) continue;
    epoll_event event{};
    event.events = wanted;
    event.data.fd = lane.fd.get();
    const int change = wanted == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    epoll_ctl(epoll_.get(), change, lane.fd.get(), &event);
  }
}

void Engine::arm() {
  if (prepare_sleep()) eventfd_write(wake_.get(), 1);
  if (armed_) return;
  armed_ = true;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.fd = epoll_.get();
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
  if (thread_sleeps_) eventfd_write(wake_.get(), 1);
}

void Engine::disarm() {
  if (!armed_) return;
  wake_up();
  armed_ = false;
  // The engine's thread may sleep for long on the epoll that is switched off here. It is woken to
  // look again soon.
  if (thread_sleeps_) eventfd_write(wake_.get(), 1);
  epoll_event event{};
  event.data.fd = epoll_.get();
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

}  // namespace thalweg::net
