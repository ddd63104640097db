#include "net/io/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr int kLoopEventsPerWait = 64;
constexpr std::int64_t kPsPerSecond = 1'000'000'000'000;
// The loop that this thread runs.
thread_local const EventLoop* running_here = nullptr;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::make() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("cannot make an epoll", errno);
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return system_error("cannot make an eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return system_error("cannot watch an eventfd", errno);
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

Status EventLoop::add(int fd, std::uint32_t events, Handler& handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("cannot watch a socket", errno);
  }
  handlers_[fd] = &handler;
  return ok_status();
}

void EventLoop::change(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0, "errno {}", errno);
}

void EventLoop::remove(int fd) {
  if (handlers_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool EventLoop::post(std::function<void()> work) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return false;
    first = posted_.empty();
    posted_.push_back(std::move(work));
  }
  // The loop's own thread looks at what it posted before it sleeps.
  if (first && running_here != this) eventfd_write(wake_.get(), 1);
  return true;
}

void EventLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  eventfd_write(wake_.get(), 1);
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (const auto& item : work) item();
}

void EventLoop::wait(std::optional<Time> until) {
  std::array<epoll_event, kLoopEventsPerWait> events;
  timespec timeout{};
  if (until) {
    const std::int64_t left = std::max<std::int64_t>(0, (*until - monotonic_now()).ps());
    timeout.tv_sec = left / kPsPerSecond;
    timeout.tv_nsec = left % kPsPerSecond / 1000;
  }
  const int count = epoll_pwait2(epoll_.get(), events.data(), kLoopEventsPerWait,
                                 until ? &timeout : nullptr, nullptr);
  CHECK(count >= 0 || errno == EINTR, "errno {}", errno);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == wake_.get()) {
      eventfd_t value = 0;
      eventfd_read(wake_.get(), &value);
      continue;
    }
    // A handler called in this loop may have removed this one.
    const auto handler = handlers_.find(event.data.fd);
    if (handler != handlers_.end()) handler->second->on_ready(event.data.fd, event.events);
  }
}

void EventLoop::run(const std::function<std::optional<Time>()>& turn) {
  running_here = this;
  while (true) {
    run_posted();
    std::optional<Time> next = turn();
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) break;
      if (!posted_.empty()) next = Time();
    }
    wait(next);
  }
  run_posted();
  running_here = nullptr;
}

}  // namespace thalweg::net
