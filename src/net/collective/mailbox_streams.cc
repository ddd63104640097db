// The mailbox's streams and its thread, which reads and writes them all.
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/collective/mailbox.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

constexpr int kEventsPerWait = 64;
// With messages under way, this often: is the communicator broken, has a deadline passed?
constexpr int kLookEveryMs = 50;
constexpr Duration kLongestLinger = Duration::milliseconds(1000);

}  // namespace

Status Mailbox::connect_to(Lock& lock, const Op& op) {
  Connection& connection = *out_[static_cast<std::size_t>(op.peer)];
  if (!broken_.empty()) return Error(broken_);
  if (connection.connected()) return ok_status();
  if (connection.over().empty()) {
    lock.unlock();
    Result<DialedStream> stream = options_.connect(op.peer, op.deadline);
    lock.lock();
    if (!stream.ok()) return stream.error().within(fmt::format("rank {}", op.peer));
    if (!broken_.empty()) return Error(broken_);
    if (connection.connected()) return ok_status();
    const auto hello = encode_frame({.kind = FrameKind::kHello,
                                     .operation = kMessageStream,
                                     .slot = static_cast<std::uint32_t>(options_.size),
                                     .signature = options_.signature,
                                     .rank = static_cast<std::uint32_t>(options_.rank)});
    if (::send(stream->fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(hello.size())) {
      return system_error(fmt::format("cannot greet rank {}", op.peer), errno);
    }
    if (stream->answer) connection.expect(*stream->answer);
    attach(connection, std::move(stream->fd));
  }
  if (!connection.over().empty()) {
    return Error(fmt::format("rank {} is lost: {}", op.peer, connection.over()));
  }
  return ok_status();
}

void Mailbox::adopt(int rank, Fd stream) {
  const Lock lock(mutex_);
  Connection& connection = *in_[static_cast<std::size_t>(rank)];
  if (stopping_ || connection.connected() || !connection.over().empty()) return;
  attach(connection, std::move(stream));
  eventfd_write(wake_.get(), 1);
}

void Mailbox::attach(Connection& connection, Fd stream) {
  prepare_stream(stream.get());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &connection;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.get(), &event) == 0, "errno {}", errno);
  connection.watching = EPOLLIN;
  connection.attach(std::move(stream));
}

void Mailbox::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    const int timeout = idle() ? -1 : kLookEveryMs;
    lock.unlock();
    std::array<epoll_event, 1> any;
    epoll_wait(epoll_.get(), any.data(), 1, timeout);
    const std::string broken = options_.broken();
    lock.lock();
    if (stopping_) break;
    handle_events(0);
    if (!broken.empty() && broken_.empty()) finish_all(broken);
    check_deadlines(monotonic_now());
    settle();
  }
}

void Mailbox::handle_events(int timeout_ms) {
  std::array<epoll_event, kEventsPerWait> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == nullptr) {
      eventfd_t value = 0;
      eventfd_read(wake_.get(), &value);
      continue;
    }
    auto& connection = *static_cast<Connection*>(event.data.ptr);
    connection.read(buffer_, *this);
    touch(connection);
  }
}

void Mailbox::check_deadlines(Time now) {
  const auto late = [&](const auto& op) { return now >= op->deadline; };
  while (true) {
    const auto receive = std::ranges::find_if(receives_, late);
    if (receive == receives_.end()) break;
    // finish() takes it off the list.
    const std::shared_ptr<Op> op = *receive;  // NOLINT(performance-unnecessary-copy-initialization)
    finish(op,
           Error(fmt::format("{}: no such message came within {}", op->text, to_human(op->limit))));
  }
  // What is under way cannot be taken back: its stream ends, and all messages on it.
  for (std::size_t i = 0; i < moving_.size();) {
    const std::shared_ptr<Op> op = moving_[i];
    ++i;
    if (!late(op)) continue;
    const std::string what = op->executor ? "not all of it was taken" : "no receive took it";
    Connection& connection = *(op->sends ? out_ : in_)[static_cast<std::size_t>(op->peer)];
    finish(op, Error(fmt::format("{}: {} within {}", op->text,
                                 op->sends ? what : "not all of it came", to_human(op->limit))));
    connection.break_off("a message on it was late");
    touch(connection);
    i = 0;
  }
}

void Mailbox::settle() {
  while (!dirty_.empty()) {
    Connection& connection = *dirty_.back();
    dirty_.pop_back();
    connection.dirty = false;
    if (connection.connected()) connection.flush(*this);
    look_over(connection);
    watch(connection);
  }
  for (std::size_t i = 0; i < moving_.size();) {
    const std::shared_ptr<Op> op = moving_[i];
    if (op->executor && op->executor->done()) {
      finish(op, ok_status());
    } else {
      ++i;
    }
  }
}

void Mailbox::look_over(Connection& connection) {
  if (connection.over().empty()) return;
  const bool outgoing = is_outgoing(connection);
  const int rank = connection.peer().value();
  const auto lost = [&](const std::shared_ptr<Op>& op) {
    finish(op, Error(fmt::format("{}: rank {} is lost: {}", op->text, rank, connection.over())));
  };
  for (std::size_t i = 0; i < moving_.size();) {
    const std::shared_ptr<Op> op = moving_[i];
    if (op->peer == rank && op->sends == outgoing) {
      lost(op);
    } else {
      ++i;
    }
  }
  if (outgoing) return;
  for (std::size_t i = 0; i < receives_.size();) {
    const std::shared_ptr<Op> op = receives_[i];
    if (op->peer == rank) {
      lost(op);
    } else {
      ++i;
    }
  }
  // Those that came whole stay.
  offered_[static_cast<std::size_t>(rank)] -=
      static_cast<std::uint32_t>(std::erase_if(letters_, [&](const Letter& letter) {
        return letter.source == rank && letter.frame.started == 0;
      }));
}

void Mailbox::touch(Connection& connection) {
  if (std::exchange(connection.dirty, true)) return;
  dirty_.push_back(&connection);
}

void Mailbox::watch(Connection& connection) {
  if (!connection.connected()) return;
  const std::uint32_t wanted =
      EPOLLIN | (connection.blocked() ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (wanted == connection.watching) return;
  connection.watching = wanted;
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = &connection;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

// Small messages that were sent are to arrive, though their sender leaves.
void Mailbox::linger() {
  const Time until = monotonic_now() + kLongestLinger;
  const auto delivered = [](const auto& connection) { return connection->delivered(); };
  while (monotonic_now() < until) {
    settle();
    handle_events(0);
    if (std::ranges::all_of(out_, delivered) && std::ranges::all_of(in_, delivered)) return;
    for (const auto& connection : out_) touch(*connection);
    sched_yield();
  }
}

}  // namespace thalweg
