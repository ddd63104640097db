// Who drives the engine, and how it waits.
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/collective/engine.h"
#include "net/system.h"

namespace thalweg {
namespace {

// Up to so many streams are read one by one while a driver looks again; more, by what epoll says.
constexpr std::size_t kFewStreams = 4;
constexpr int kEventsPerWait = 64;
// Nobody has driven for so long: the engine's thread listens again.
constexpr int kPauseMs = 20;
constexpr Duration kLongest = Duration::milliseconds(1000);
// Timers are looked at this often by a driver that does not sleep.
constexpr int kLooksPerTimer = 64;

int to_ms(Duration duration) {
  return static_cast<int>(std::clamp(duration.ms() + 0.999, 0.0, 1000.0));
}

}  // namespace

Status Engine::wait(Op& op) {
  Lock lock(mutex_);
  while (!op.result) {
    // What goes over DLCP is driven by its endpoint's thread.
    if (driven_ || op.dlcp) {
      changed_.wait(lock);
      continue;
    }
    driven_ = true;
    disarm();
    drive(lock, op);
    driven_ = false;
    if (!running_.empty()) arm();
    changed_.notify_all();
  }
  return *op.result;
}

bool Engine::over(const Op& op) {
  const Lock lock(mutex_);
  return op.result.has_value();
}

void Engine::drive(Lock& lock, const Op& until) {
  Time spin_until = monotonic_now() + options_.spin;
  int looks = 0;
  while (!until.result) {
    const bool moved = poll();
    if (until.result) return;
    if (moved) {
      looks = 0;
      spin_until = Time();
      continue;
    }
    const Time now = monotonic_now();
    if (spin_until == Time()) spin_until = now + options_.spin;
    if (++looks % kLooksPerTimer == 0) check_timers(now);
    // Another thread may have something to start.
    lock.unlock();
    sched_yield();
    lock.lock();
    if (now < spin_until || until.result) continue;
    sleep(lock, next_timer(now));
    check_timers(monotonic_now());
    spin_until = Time();
  }
}

void Engine::sleep(Lock& lock, Time until) {
  const int timeout = to_ms(until - monotonic_now());
  lock.unlock();
  // Only to wait: what is ready is seen again, with the lock.
  epoll_event event{};
  epoll_wait(epoll_.get(), &event, 1, timeout);
  lock.lock();
}

bool Engine::poll() {
  bool moved = false;
  if (open_.size() <= kFewStreams && newcomers_.empty() && !streams_missing()) {
    for (Connection* connection : open_) {
      if (connection->read(buffer_, *this)) {
        moved = true;
        look_over(*connection);
        watch(*connection);
      }
      if (connection->blocked()) touch(*connection);
    }
    std::erase_if(open_, [](const Connection* c) { return !c->connected(); });
  } else {
    moved = handle_events(0);
  }
  settle();
  return moved;
}

bool Engine::handle_events(int timeout_ms) {
  std::array<epoll_event, kEventsPerWait> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_streams();
      continue;
    }
    const auto connection = std::ranges::find_if(
        open_, [&](const Connection* c) { return c->connected() && c->fd() == fd; });
    if (connection != open_.end()) {
      (*connection)->read(buffer_, *this);
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

// Ends are noticed here: a connection must not disappear while it is being read.
void Engine::look_over(Connection& connection) {
  if (connection.over().empty() || !broken_.empty()) return;
  const int rank = connection.peer().value();
  if (!connection.peer_left) {
    fail(static_cast<std::uint32_t>(rank),
         fmt::format("rank {} is lost: {}", rank, connection.over()));
    return;
  }
  for (const auto& op : running_) {
    if (needs(*op, connection.peer())) {
      fail(static_cast<std::uint32_t>(rank), fmt::format("rank {} has left", rank));
      return;
    }
  }
}

void Engine::settle() {
  while (!dirty_.empty()) {
    Connection& connection = *dirty_.back();
    dirty_.pop_back();
    connection.dirty = false;
    if (!connection.connected()) continue;
    connection.flush(*this);
    look_over(connection);
    watch(connection);
  }
  for (std::size_t i = 0; i < running_.size();) {
    if (running_[i]->executor && running_[i]->executor->done()) {
      finish(*running_[i], ok_status());
    } else {
      ++i;
    }
  }
}

void Engine::watch(Connection& connection) {
  if (!connection.connected()) return;
  const std::uint32_t wanted = (connection.stalled() ? 0U : static_cast<std::uint32_t>(EPOLLIN)) |
                               (connection.blocked() ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (wanted == connection.watching) return;
  connection.watching = wanted;
  epoll_event event{};
  event.events = wanted;
  event.data.fd = connection.fd();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

void Engine::arm() {
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
  armed_ = false;
  epoll_event event{};
  event.data.fd = epoll_.get();
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

Time Engine::next_timer(Time now) const {
  Time next = now + kLongest;
  for (const auto& op : running_) {
    next = std::min(next, op->asked ? op->deadline : std::min(op->ask_at, op->deadline));
  }
  return std::max(next, now);
}

void Engine::check_timers(Time now) {
  for (const auto& op : running_) {
    if (now >= op->deadline) {
      // Ends the loop: it empties running_.
      fail(waits_for(*op), late_text(*op));
      break;
    }
    if (!op->asked && now >= op->ask_at) ask_peers(*op);
  }
  settle();
}

void Engine::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    const Time now = monotonic_now();
    int timeout = -1;
    if (driven_ || !armed_) {
      timeout = kPauseMs;
    } else if (!running_.empty()) {
      timeout = to_ms(next_timer(now) - now);
    }
    thread_sleeps_ = timeout < 0;
    lock.unlock();
    epoll_event event{};
    epoll_wait(outer_.get(), &event, 1, timeout);
    lock.lock();
    thread_sleeps_ = false;
    eventfd_t value = 0;
    eventfd_read(wake_.get(), &value);
    if (driven_ || stopping_) continue;
    disarm();
    while (handle_events(0)) settle();
    settle();
    check_timers(monotonic_now());
    arm();
  }
}

}  // namespace thalweg
