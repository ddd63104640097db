// How the engine is driven, and how it waits.
#include <fmt/core.h>
#include <sched.h>
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

// A driver that polls reads up to this many streams one by one. With more it asks epoll which to
// read.
constexpr std::ptrdiff_t kFewStreams = 4;
// A driver that has found nothing looks at the stream that its operation waits for, and at all
// streams only once in this many polls.
constexpr int kLooksPerSweep = 4;
// Finding out which that is takes longer than a look in plans of more arrivals.
constexpr std::size_t kFewArrivals = 64;
// A payload of which no more than this is left after its first bytes is read to its end before
// anything is sent. What follows from it then leaves in one piece.
constexpr std::size_t kShortRest = 64 << 10;
// When no thread has driven for this long, the engine's thread listens again.
constexpr int kPauseMs = 20;
constexpr Duration kLongestSleep = Duration::milliseconds(1000);
// The most rounds of handling events without letting other threads have the lock.
constexpr int kMostRounds = 64;
// A driver that polls in vain checks the timers once in this many polls.
constexpr int kLooksPerTimer = 64;
// A driver that always finds something to do checks the timers once in this many polls.
constexpr unsigned kMovesPerTimer = 1024;
// If every rank has a core, a driver yields only once in this many polls.
constexpr int kLooksPerYield = 16;
// A caller that has just started an operation looks at the rings this many times, which takes about
// a microsecond, and polls at most kFirstFinds times if it finds something.
constexpr int kFirstLooks = 256;
constexpr int kFirstFinds = 16;
// A yield that finds no other thread on the core takes about half of this.
constexpr Duration kLongestAlone = Duration::nanoseconds(1000);

int to_ms(Duration duration) {
  return static_cast<int>(std::clamp(duration.ms() + 0.999, 0.0, 1000.0));
}

}  // namespace

Status Engine::wait(Op& op) {
  Lock lock(mutex_);
  while (!op.result) {
    // The endpoint's thread drives an operation over DLCP.
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
  Pace pace;
  while (!until.result) {
    const bool moved = pace.looks % kLooksPerSweep == 0 ? poll() : poll_awaited(until);
    if (until.result) {
      core_is_shared_ = core_is_shared_ && pace.yielded;
      return;
    }
    if (look_again(lock, pace, moved) || until.result) continue;
    sleep(lock, next_timer(monotonic_now()));
    // Handles whatever woke this thread, including newcomers, which poll() may skip.
    handle_events(0);
    settle();
    check_timers(monotonic_now());
    pace = {};
  }
}

bool Engine::look_again(Lock& lock, Pace& pace, bool moved) {
  if (moved) {
    // What moves need not be what an operation waits for, so deadlines are checked all the same.
    if (++pace.moves % kMovesPerTimer == 0) check_timers(monotonic_now());
    pace.looks = 0;
    pace.until = Time();
    return true;
  }
  ++pace.looks;
  if (!is_crowded() && pace.looks % kLooksPerYield != 0) return true;
  const Time now = monotonic_now();
  if (pace.until == Time()) pace.until = now + options_.spin;
  if (pace.looks % kLooksPerTimer == 0) check_timers(now);
  // Another thread may have an operation to start.
  lock.unlock();
  sched_yield();
  const Duration away = monotonic_now() - now;
  lock.lock();
  pace.yielded = true;
  // core_is_shared_ makes a driver yield after each poll. With sockets that gains nothing, because
  // reading a socket takes as long as a yield.
  const bool others_ran = away > kLongestAlone;
  core_is_shared_ = others_ran && std::ranges::all_of(open_, &Connection::reads_shared);
  return now < pace.until;
}

void Engine::sleep(Lock& lock, Time until) {
  if (!prepare_sleep()) {
    const int timeout = to_ms(until - monotonic_now());
    driver_sleeps_ = true;
    lock.unlock();
    // This only waits. handle_events() below sees what is ready again, with the lock.
    epoll_event event{};
    epoll_wait(epoll_.get(), &event, 1, timeout);
    lock.lock();
    if (!std::exchange(driver_sleeps_, false)) {
      eventfd_t value = 0;
      eventfd_read(nudge_.get(), &value);
    }
    handle_events(0);
  }
  wake_up();
}

void Engine::nudge() {
  if (std::exchange(driver_sleeps_, false)) eventfd_write(nudge_.get(), 1);
}

bool Engine::prepare_sleep() {
  bool work = false;
  for (Connection* connection : open_) {
    work = connection->prepare_sleep() || connection->has_early() || work;
  }
  return work;
}

void Engine::wake_up() {
  for (Connection* connection : open_) connection->wake_up();
}

bool Engine::read(Connection& connection) {
  const bool begins = connection.rest_of_payload() == 0;
  if (!connection.read(buffer_, *this)) return false;
  const bool is_short = begins && connection.rest_of_payload() <= kShortRest;
  while (is_short && connection.rest_of_payload() > 0 && connection.read(buffer_, *this)) {
  }
  look_over(connection);
  watch(connection);
  return true;
}

bool Engine::poll() {
  bool moved = false;
  bool ended = false;
  std::ptrdiff_t by_socket = 0;
  bool few = newcomers_.empty() && !streams_missing();
  for (const Connection* connection : open_) {
    by_socket += connection->reads_shared() ? 0 : 1;
    few = few && by_socket <= kFewStreams && !connection->misses_lane();
  }
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Connection& connection = *open_[i];
    if (!few && !connection.reads_shared() && !connection.has_early()) continue;
    if (read(connection)) {
      moved = true;
      settle();  // what follows from it leaves before others are read
    }
    if (connection.blocked()) touch(connection);
    ended = ended || !connection.connected();
  }
  if (ended) std::erase_if(open_, [](const Connection* c) { return !c->connected(); });
  if (!few) moved = handle_events(0) || moved;
  settle();
  return moved;
}

bool Engine::poll_awaited(const Op& op) {
  if (running_.size() != 1 || !op.executor || op.plan->arrivals().size() > kFewArrivals) {
    return poll();
  }
  const std::optional<Rank> peer = op.executor->waits_for();
  if (!peer) return poll();
  Connection& connection = *connections_[peer->index()];
  if (connection.reads_shared() || connection.blocked() || !connection.connected()) return poll();
  if (!read(connection)) return false;
  settle();
  return true;
}

bool Engine::is_quiet() const { return std::ranges::all_of(open_, &Connection::is_quiet); }

void Engine::look_first(const Op& op) {
  int finds = 0;
  for (int looks = 0; looks < kFirstLooks && finds < kFirstFinds && !op.result; ++looks) {
    if (is_quiet()) continue;
    poll();
    ++finds;
  }
}

void Engine::settle() {
  do {
    notice_break();
    send_control();
    while (!dirty_.empty()) {
      Connection& connection = *dirty_.back();
      dirty_.pop_back();
      connection.dirty = false;
      if (!connection.connected()) continue;
      connection.flush(*this);
      look_over(connection);
      watch(connection);
    }
    // If the communicator broke just now, the protocol ends all operations itself.
    for (std::size_t i = 0; !core_.broken() && i < running_.size(); ++i) {
      if (running_[i]->done()) core_.finish(*running_[i]);
    }
    notice_break();
    end_over();
  } while (core_.has_control() || !dirty_.empty());
}

Time Engine::next_timer(Time now) const {
  Time next = now + kLongestSleep;
  if (const std::optional<Time> timer = core_.next_timer()) next = std::min(next, *timer);
  if (const std::optional<Time> look = next_look()) next = std::min(next, *look);
  return std::max(next, now);
}

void Engine::check_timers(Time now) {
  core_.on_timer(now);
  look_at_streams(now);
  settle();
}

void Engine::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    const Time now = monotonic_now();
    int timeout = -1;
    if (driven_ || !armed_) {
      timeout = kPauseMs;
    } else if (core_.broken() && !announced_) {
      timeout = 0;  // consult() announces it; no later event may come
    } else if (core_.next_timer()) {
      timeout = to_ms(next_timer(now) - now);
    }
    thread_sleeps_ = timeout < 0 || timeout > kPauseMs;
    lock.unlock();
    epoll_event event{};
    const bool woken = epoll_wait(outer_.get(), &event, 1, timeout) > 0;
    lock.lock();
    thread_sleeps_ = false;
    eventfd_t value = 0;
    eventfd_read(wake_.get(), &value);
    if (stopping_) break;
    take_posted(lock);
    consult(lock);
    if (driven_ || stopping_) continue;
    // Another thread drives for a moment, and may do so again at once. After a pause it is this
    // thread's turn.
    if (woken && !armed_ && !options_.works_alone) continue;
    disarm();
    handle_events(0);
    if (options_.works_alone) {
      work(lock);
    } else {
      for (int i = 0; i < kMostRounds && poll(); ++i) {
      }
    }
    check_timers(monotonic_now());
    arm();
  }
  consult(lock);
  {
    const std::lock_guard posted(posted_mutex_);
    thread_over_ = true;
  }
  take_posted(lock);
}

void Engine::work(Lock& lock) {
  driven_ = true;
  Pace pace;
  do {
    take_posted(lock);
  } while (look_again(lock, pace, poll()) && !stopping_);
  driven_ = false;
  changed_.notify_all();
}

void Engine::linger() {
  while (true) {
    settle();
    for (Connection* connection : open_) {
      while (connection->read(buffer_, *this)) {
      }
    }
    const bool delivered = std::ranges::all_of(open_, &Connection::delivered);
    if (delivered || monotonic_now() >= linger_until_) return;
    sched_yield();
    for (Connection* connection : open_) touch(*connection);
  }
}

}  // namespace thalweg::net
