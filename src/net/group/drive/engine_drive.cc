// How the engine is driven, and how it waits.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "net/group/drive/engine.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// A driver that has found nothing looks at the stream that its operation waits for, and at all
// streams only once in this many polls.
constexpr int kLooksPerSweep = 4;
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

Status Engine::wait(Operation::State& state) {
  auto& op = static_cast<Op&>(state);
  Lock lock(mutex_);
  while (!op.result) {
    // The endpoint's thread drives an operation over DLCP.
    if (driven_ || op.is_dlcp) {
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

bool Engine::over(const Operation::State& op) {
  const Lock lock(mutex_);
  return op.result.has_value();
}

void Engine::drive(Lock& lock, const Op& until) {
  Pace pace;
  while (!until.result) {
    const bool moved =
        pace.looks % kLooksPerSweep == 0 ? exchange_.poll() : exchange_.poll_for(until);
    if (until.result) {
      core_is_shared_ = core_is_shared_ && pace.yielded;
      return;
    }
    if (look_again(lock, pace, moved) || until.result) continue;
    sleep(lock, next_timer(monotonic_now()));
    // Handles whatever woke this thread, including newcomers, which poll() may skip.
    streams_.handle_events(0);
    exchange_.settle();
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
  core_is_shared_ = away > kLongestAlone && streams_.all_share_memory();
  return now < pace.until;
}

void Engine::sleep(Lock& lock, Time until) {
  if (!streams_.prepare_sleep()) {
    const int timeout = to_ms(until - monotonic_now());
    driver_sleeps_ = true;
    lock.unlock();
    // This only waits. handle_events() below sees what is ready again, with the lock.
    epoll_event event{};
    epoll_wait(streams_.epoll(), &event, 1, timeout);
    lock.lock();
    if (!std::exchange(driver_sleeps_, false)) {
      eventfd_t value = 0;
      eventfd_read(nudge_.get(), &value);
    }
    streams_.handle_events(0);
  }
  streams_.wake_up();
}

void Engine::nudge() {
  if (std::exchange(driver_sleeps_, false)) eventfd_write(nudge_.get(), 1);
}

void Engine::wake() {
  eventfd_write(wake_.get(), 1);
  nudge();
}

void Engine::look_first(const Op& op) {
  int finds = 0;
  for (int looks = 0; looks < kFirstLooks && finds < kFirstFinds && !op.result; ++looks) {
    if (streams_.is_quiet()) continue;
    exchange_.poll();
    ++finds;
  }
}

Time Engine::next_timer(Time now) const {
  Time next = now + kLongestSleep;
  if (const std::optional<Time> timer = core_.next_timer()) next = std::min(next, *timer);
  const std::optional<Time> look = running_.empty() ? std::nullopt : streams_.next_look();
  if (look) next = std::min(next, *look);
  return std::max(next, now);
}

void Engine::check_timers(Time now) {
  core_.on_timer(now);
  if (!running_.empty() && !stopping_) streams_.look(now);
  exchange_.settle();
}

void Engine::arm() {
  const bool has_work = streams_.prepare_sleep();
  const bool was_armed = std::exchange(armed_, true);
  if (!was_armed) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.fd = streams_.epoll();
    epoll_ctl(outer_.get(), EPOLL_CTL_MOD, streams_.epoll(), &event);
  }
  // The engine's thread may sleep for longer than an operation that has just begun allows.
  const bool oversleeps =
      thread_sleeps_ && (!was_armed || !thread_wakes_at_ || core_.next_timer() < thread_wakes_at_);
  if (has_work || oversleeps) eventfd_write(wake_.get(), 1);
}

void Engine::disarm() {
  if (!armed_) return;
  streams_.wake_up();
  armed_ = false;
  // The engine's thread may sleep for long on the epoll that is switched off here. It is woken to
  // look again soon.
  if (thread_sleeps_) eventfd_write(wake_.get(), 1);
  epoll_event event{};
  event.data.fd = streams_.epoll();
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, streams_.epoll(), &event);
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
    thread_wakes_at_.reset();
    if (timeout >= 0) thread_wakes_at_ = now + Duration::milliseconds(timeout);
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
    streams_.handle_events(0);
    if (options_.works_alone) {
      work(lock);
    } else {
      for (int i = 0; i < kMostRounds && exchange_.poll(); ++i) {
      }
    }
    check_timers(monotonic_now());
    arm();
  }
  consult(lock);
  inbox_.close();
  take_posted(lock);
}

void Engine::work(Lock& lock) {
  driven_ = true;
  Pace pace;
  do {
    take_posted(lock);
  } while (look_again(lock, pace, exchange_.poll()) && !stopping_);
  driven_ = false;
  changed_.notify_all();
}

}  // namespace thalweg::net
