// Who drives the engine, and how it waits.
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/check.h"
#include "net/collective/engine.h"
#include "net/system.h"

namespace thalweg {
namespace {

// Up to so many streams are read one by one while a driver looks again; more, by what epoll says.
constexpr std::ptrdiff_t kFewStreams = 4;
constexpr int kEventsPerWait = 64;
// Nobody has driven for so long: the engine's thread listens again.
constexpr int kPauseMs = 20;
constexpr Duration kLongest = Duration::milliseconds(1000);
// Of looking at events without letting others have the lock.
constexpr int kMostRounds = 64;
// For so long what a peer has sent is kept after its end.
constexpr Duration kHangUpTime = Duration::milliseconds(250);
// Timers are looked at this often by a driver that does not sleep.
constexpr int kLooksPerTimer = 64;
// And this often by one that has always something to do.
constexpr unsigned kMovesPerTimer = 1024;
// With a core for every rank, one that waits lets others run only this often.
constexpr int kLooksPerYield = 16;
// Of one who has just started an operation: about a microsecond, if so few find something.
constexpr int kFirstLooks = 256;
constexpr int kFirstFinds = 16;
// A yield that finds nobody else on the core takes less: half of it or so.
constexpr Duration kLongestAlone = Duration::nanoseconds(1000);

// See engine_questions.cc.
Time last_in_chain_deadline(const Operation::State& op) {
  return op.deadline - std::min(op.limit / 8, Duration::milliseconds(500));
}

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
  Pace pace;
  while (!until.result) {
    const bool moved = poll();
    if (until.result) {
      core_is_shared_ = core_is_shared_ && pace.yielded;
      return;
    }
    if (look_again(lock, pace, moved) || until.result) continue;
    sleep(lock, next_timer(monotonic_now()));
    // Whatever woke us is looked at, also what poll() passes over: newcomers.
    handle_events(0);
    settle();
    check_timers(monotonic_now());
    pace = {};
  }
}

bool Engine::look_again(Lock& lock, Pace& pace, bool moved) {
  if (moved) {
    // What moves need not be what an operation waits for: deadlines are looked at all the same.
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
  // Another thread may have something to start.
  lock.unlock();
  sched_yield();
  const Duration away = monotonic_now() - now;
  lock.lock();
  pace.yielded = true;
  // Looking into sockets takes as long as a yield: then there is nothing to gain.
  const bool others_ran = away > kLongestAlone;
  core_is_shared_ = others_ran && std::ranges::all_of(open_, &Connection::reads_shared);
  turns_ = others_ran ? std::min(turns_ + 1, kTurnsOnACore) : 0;
  if (turns_ >= kTurnsOnACore) move_apart(lock);
  return now < pace.until;
}

void Engine::sleep(Lock& lock, Time until) {
  if (!prepare_sleep()) {
    const int timeout = to_ms(until - monotonic_now());
    driver_sleeps_ = true;
    lock.unlock();
    // Only to wait: what is ready is seen again, with the lock.
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
  for (Connection* connection : open_) work = connection->prepare_sleep() || work;
  return work;
}

void Engine::wake_up() {
  for (Connection* connection : open_) connection->wake_up();
}

bool Engine::read(Connection& connection) {
  if (!connection.read(buffer_, *this)) return false;
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
  for (Connection* connection : open_) {
    if (!few && !connection->reads_shared()) continue;
    moved = read(*connection) || moved;
    if (connection->blocked()) touch(*connection);
    ended = ended || !connection->connected();
  }
  if (ended) std::erase_if(open_, [](const Connection* c) { return !c->connected(); });
  if (!few) moved = handle_events(0) || moved;
  settle();
  return moved;
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

// A peer that has ended, while what it sent belongs to an operation that has not begun here, or is
// on a lane. It may have done all its part and left; then that is read.
void Engine::hang_up(Connection& connection, bool moved) const {
  const Time now = monotonic_now();
  if (!connection.hung_up || moved) connection.hung_up = now;
  if (now >= *connection.hung_up + kHangUpTime) connection.break_off("its connection closed");
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
  watch_lanes(connection);
  const bool frames =
      !connection.reads_shared() && !connection.stalled() && connection.source() == 0;
  const bool bells = connection.reads_shared() && !connection.deaf();
  const bool room = !connection.writes_shared() && connection.first_blocked();
  // While a lane is read, only the end of the first stream is looked for.
  const bool end = connection.source() != 0;
  const std::uint32_t wanted = (frames || bells ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (end ? static_cast<std::uint32_t>(EPOLLRDHUP) : 0U) |
                               (room ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (wanted == connection.watching) return;
  connection.watching = wanted;
  epoll_event event{};
  event.events = wanted;
  event.data.fd = connection.fd();
  // One that has ended would go on reporting that.
  const int change = connection.deaf() ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_ctl(epoll_.get(), change, connection.fd(), &event);
}

// A lane is watched only while something is wanted of it: the end of one that nothing is would be
// reported again and again.
void Engine::watch_lanes(Connection& connection) {
  std::uint32_t number = 0;
  for (Lane& lane : connection.lanes()) {
    ++number;
    const bool payload =
        (connection.source() == number && !connection.stalled()) || !lane.answer_due.empty();
    const std::uint32_t wanted = (payload ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                                 (lane.blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
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
  // The engine's thread may sleep long on what is switched off here: it is to look again soon.
  if (thread_sleeps_) eventfd_write(wake_.get(), 1);
  epoll_event event{};
  event.data.fd = epoll_.get();
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

Time Engine::next_timer(Time now) const {
  Time next = now + kLongest;
  for (const auto& op : running_) {
    next = std::min(next, std::min(op->ask_at, last_in_chain_deadline(*op)));
  }
  for (const Connection* connection : open_) {
    if (connection->stalled()) next = std::min(next, connection->stalled_at + kAskAfter);
  }
  return std::max(next, now);
}

void Engine::check_timers(Time now) {
  for (const auto& op : running_) {
    if (now >= op->deadline || (now >= last_in_chain_deadline(*op) && is_last_in_chain(*op))) {
      // Ends the loop: it empties running_.
      fail(culprit_of(*op), late_text(*op));
      break;
    }
    if (now >= op->ask_at) ask_peers(*op);
  }
  tell_stalled(now);
  settle();
}

void Engine::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    const Time now = monotonic_now();
    int timeout = -1;
    if (driven_ || !armed_) {
      timeout = kPauseMs;
    } else if (!running_.empty() || std::ranges::any_of(open_, &Connection::stalled)) {
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
    // Somebody drives for a moment, and may again at once: after a pause it is our turn.
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

}  // namespace thalweg
