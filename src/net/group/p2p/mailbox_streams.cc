// The mailbox's streams and its thread, which reads and writes them all.
#include <fmt/core.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/group/p2p/mailbox.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

constexpr int kMessageEventsPerWait = 64;
// While messages are under way, the thread checks at this interval whether the communicator is
// broken and whether a deadline has passed.
constexpr int kLookEveryMs = 50;
constexpr Duration kLongestMessageLinger = Duration::milliseconds(1000);

Error late(const MessageOperation& op, const std::string& what) {
  const auto peer = op.peer == kAnyPeer ? std::nullopt : std::optional<int>(op.peer);
  return {ErrorCode::kTimeout,
          fmt::format("{}: {} within {}", op.text, what, to_human(op.limit_in_words())), peer};
}

}  // namespace

Status Mailbox::connect_to(Lock& lock, const Op& op) {
  Stream& connection = *out_[static_cast<std::size_t>(op.peer)];
  if (broken_) return *broken_;
  if (connection.connected() && !is_lost(connection)) return ok_status();
  if (!is_lost(connection)) {
    lock.unlock();
    Result<DialedStream> stream = options_.connect(op.peer, op.deadline);
    lock.lock();
    if (!stream.ok()) return stream.error().within(fmt::format("rank {}", op.peer));
    if (broken_) return *broken_;
    if (connection.connected()) return ok_status();
    std::optional<GreetedStream> greeted =
        say_hello(std::move(*stream),
                  proto::Joining(Rank(options_.rank), options_.size, options_.signature)
                      .hello(proto::HelloFrame::Purpose::kMessages, 0),
                  options_.checks);
    if (!greeted) {
      return system_error(fmt::format("cannot greet rank {}", op.peer), errno).blaming(op.peer);
    }
    if (greeted->answer) connection.expect(*greeted->answer);
    attach(connection, std::move(greeted->stream));
  }
  if (is_lost(connection)) return lost(connection);
  return ok_status();
}

void Mailbox::adopt(int rank, CheckedStream stream) {
  const Lock lock(mutex_);
  Stream& connection = *in_[static_cast<std::size_t>(rank)];
  if (stopping_ || connection.connected() || !connection.over().empty()) return;
  attach(connection, std::move(stream));
  eventfd_write(wake_.get(), 1);
}

void Mailbox::attach(Stream& connection, CheckedStream stream) {
  const int fd = stream.fd.get();
  prepare_stream(fd);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &connection;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "errno {}", errno);
  connection.watching = EPOLLIN;
  connection.set_check(stream.check, std::move(stream.seal));
  connection.attach(std::move(stream.fd));
}

void Mailbox::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    const int timeout = idle() ? -1 : kLookEveryMs;
    lock.unlock();
    std::array<epoll_event, 1> any;
    epoll_wait(epoll_.get(), any.data(), 1, timeout);
    const std::optional<Error> broken = options_.broken();
    lock.lock();
    if (stopping_) break;
    handle_events(0);
    if (broken && !broken_) finish_all(*broken);
    check_deadlines(monotonic_now());
    settle();
  }
}

void Mailbox::handle_events(int timeout_ms) {
  std::array<epoll_event, kMessageEventsPerWait> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kMessageEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == nullptr) {
      eventfd_t value = 0;
      eventfd_read(wake_.get(), &value);
      continue;
    }
    auto& connection = *static_cast<Stream*>(event.data.ptr);
    connection.read(buffer_, *this);
    touch(connection);
  }
}

void Mailbox::check_deadlines(Time now) {
  const auto is_late = [&](const auto& op) { return now >= op->deadline; };
  while (true) {
    const auto receive = std::ranges::find_if(receives_, is_late);
    if (receive == receives_.end()) break;
    // A copy, because finish() removes it from the list.
    const std::shared_ptr<Op> op = *receive;  // NOLINT(performance-unnecessary-copy-initialization)
    finish(op, late(*op, "no such message came"));
  }
  // A message that is under way cannot be taken back. Its stream ends, and all messages on it fail.
  for (std::size_t i = 0; i < moving_.size();) {
    const std::shared_ptr<Op> op = moving_[i];
    ++i;
    if (!is_late(op)) continue;
    const std::string what = op->executor ? "not all of it was taken" : "no receive took it";
    Stream& connection = *(op->sends ? out_ : in_)[static_cast<std::size_t>(op->peer)];
    finish(op, late(*op, op->sends ? what : "not all of it came"));
    connection.break_off("a message on it was late");
    touch(connection);
    i = 0;
  }
}

void Mailbox::settle() {
  while (!dirty_.empty()) {
    Stream& connection = *dirty_.back();
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

void Mailbox::look_over(Stream& connection) {
  if (!is_lost(connection)) return;
  const bool outgoing = is_outgoing(connection);
  const int rank = connection.peer().value();
  for (std::size_t i = 0; i < moving_.size();) {
    const std::shared_ptr<Op> op = moving_[i];
    if (op->peer == rank && op->sends == outgoing) {
      finish(op, lost(connection).within(op->text));
    } else {
      ++i;
    }
  }
  if (outgoing) return;
  for (std::size_t i = 0; i < receives_.size();) {
    const std::shared_ptr<Op> op = receives_[i];
    if (op->peer == rank) {
      finish(op, lost(connection).within(op->text));
    } else {
      ++i;
    }
  }
  // Messages that arrived with their bytes stay.
  offered_[static_cast<std::size_t>(rank)] -=
      static_cast<std::uint32_t>(std::erase_if(letters_, [&](const Letter& letter) {
        return letter.source == rank && letter.frame.started == 0;
      }));
}

void Mailbox::touch(Stream& connection) {
  if (std::exchange(connection.dirty, true)) return;
  dirty_.push_back(&connection);
}

void Mailbox::watch(Stream& connection) {
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

// Small messages that were sent must still arrive after their sender has left.
void Mailbox::linger() {
  const Time until = monotonic_now() + kLongestMessageLinger;
  const auto delivered = [](const auto& connection) { return connection->delivered(); };
  while (monotonic_now() < until) {
    settle();
    handle_events(0);
    if (std::ranges::all_of(out_, delivered) && std::ranges::all_of(in_, delivered)) return;
    for (const auto& connection : out_) touch(*connection);
    sched_yield();
  }
}

}  // namespace thalweg::net
