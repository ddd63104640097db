#include "net/group/p2p/mailbox.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error_code.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kMessageReadBuffer = std::size_t{64} << 10;

std::size_t bytes_in(const MessageOperation& op) {
  return static_cast<std::size_t>(op.elements) * size_of(op.type);
}

}  // namespace

Result<std::shared_ptr<Mailbox>> Mailbox::make(MailboxOptions options) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (!epoll.valid() || !wake.valid() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return system_error("cannot make an epoll", errno);
  }
  std::shared_ptr<Mailbox> box(new Mailbox(std::move(options), std::move(epoll), std::move(wake)));
  box->thread_ = std::thread([raw = box.get()] { raw->run_thread(); });
  return box;
}

Mailbox::Mailbox(MailboxOptions options, Fd epoll, Fd wake)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      sent_(static_cast<std::size_t>(options_.size)),
      eager_(static_cast<std::size_t>(options_.size)),
      offered_(static_cast<std::size_t>(options_.size)),
      buffer_(kMessageReadBuffer) {
  for (int r = 0; r < options_.size; ++r) {
    out_.push_back(std::make_unique<Stream>(Rank(r)));
    in_.push_back(std::make_unique<Stream>(Rank(r)));
  }
}

Mailbox::~Mailbox() { leave(); }

void Mailbox::say_goodbye() {
  const Lock lock(mutex_);
  if (!broken_) finish_all(has_left());
  settle();
}

void Mailbox::leave() {
  {
    const Lock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    if (!broken_) finish_all(has_left());
    linger();
    eventfd_write(wake_.get(), 1);
  }
  thread_.join();
}

Status Mailbox::wait(Operation::State& op) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool Mailbox::over(const Operation::State& op) {
  const Lock lock(mutex_);
  return op.result.has_value();
}

void Mailbox::send(const std::shared_ptr<Op>& op) {
  Lock lock(mutex_);
  op->deadline = monotonic_now() + op->limit;
  const auto to = static_cast<std::size_t>(op->peer);
  Status ready = connect_to(lock, *op);
  const auto waiting = std::ranges::count_if(
      moving_, [&](const auto& other) { return other->sends && other->peer == op->peer; });
  if (ready.ok() && waiting >= kMostMessages) {
    ready = Error(
        ErrorCode::kNoResource,
        fmt::format("{} messages to it wait to be received; no more are allowed", kMostMessages),
        op->peer);
  }
  if (!ready.ok()) {
    op->end(ready.error().within(op->text));
    return;
  }
  op->number = ++sent_[to];
  const std::size_t bytes = bytes_in(*op);
  const bool eager = bytes <= kEagerBytes && eager_[to] < kEagerMessages;
  const wire::Frame frame{.kind = wire::FrameKind::kMessage,
                          .operation = op->number,
                          .index = op->tag,
                          .signature = static_cast<std::uint64_t>(op->elements),
                          .started = eager ? 1U : 0U,
                          .rank = static_cast<std::uint32_t>(op->type)};
  Stream& connection = *out_[to];
  if (eager) {
    ++eager_[to];
    connection.queue(frame, {reinterpret_cast<const char*>(op->tensor), bytes});
    op->end(ok_status());
  } else {
    connection.queue(frame, "");
    moving_.push_back(op);
    eventfd_write(wake_.get(), 1);
  }
  touch(connection);
  settle();
}

void Mailbox::receive(const std::shared_ptr<Op>& op) {
  const Lock lock(mutex_);
  op->deadline = monotonic_now() + op->limit;
  if (broken_) {
    op->end(broken_->within(op->text));
    return;
  }
  const auto letter =
      std::ranges::find_if(letters_, [&](const Letter& each) { return fits(*op, each); });
  if (letter != letters_.end()) {
    const Letter taken = std::move(*letter);
    letters_.erase(letter);
    deliver(op, taken);
    settle();
    return;
  }
  if (op->peer != kAnyPeer) {
    const Connection& from = *in_[static_cast<std::size_t>(op->peer)];
    if (is_lost(from)) {
      op->end(lost(from).within(op->text));
      return;
    }
  }
  receives_.push_back(op);
  eventfd_write(wake_.get(), 1);
}

bool Mailbox::fits(const Op& receive, const Letter& letter) {
  return receive.tag == letter.frame.index &&
         (receive.peer == kAnyPeer || receive.peer == letter.source);
}

void Mailbox::deliver(const std::shared_ptr<Op>& op, const Letter& letter) {
  Stream& from = *in_[static_cast<std::size_t>(letter.source)];
  --offered_[static_cast<std::size_t>(letter.source)];
  op->peer = letter.source;
  op->number = letter.frame.operation;
  const bool eager = letter.frame.started != 0;
  wire::Frame reply{.kind = eager ? wire::FrameKind::kTaken : wire::FrameKind::kAccept,
                    .operation = letter.frame.operation};
  std::string problem;
  if (letter.frame.rank != static_cast<std::uint32_t>(op->type) ||
      letter.frame.signature != static_cast<std::uint64_t>(op->elements)) {
    problem =
        fmt::format("rank {} receives {} {}, and rank {} sends {} {} with tag {}", options_.rank,
                    op->elements, name_of(op->type), letter.source, letter.frame.signature,
                    name_of(static_cast<DType>(letter.frame.rank)), op->tag);
    reply.rank = 1;
  }
  from.queue(reply, eager ? "" : problem);
  touch(from);
  if (!problem.empty()) {
    finish(op, Error(ErrorCode::kMismatch, fmt::format("{}: {}", op->text, problem)));
  } else if (eager) {
    if (!letter.bytes.empty()) std::memcpy(op->tensor, letter.bytes.data(), letter.bytes.size());
    finish(op, ok_status());
  } else if (op->elements == 0) {
    finish(op, ok_status());
  } else {
    start_executor(*op, false);
    moving_.push_back(op);
  }
}

void Mailbox::start_executor(Op& op, bool sends) {
  op.plan.emplace(exec::message_plan(op.elements, static_cast<int>(size_of(op.type)), sends));
  op.executor = std::make_unique<exec::StreamExecutor>();
  op.executor->start(*op.plan, op.type, ReduceOp::kSum, std::span(&op.tensor, 1));
  on_progress(op);
}

void Mailbox::finish(const std::shared_ptr<Op>& op, Status result) {
  std::erase(moving_, op);
  std::erase(receives_, op);
  if (op->sends) {
    std::erase_if(out_[static_cast<std::size_t>(op->peer)]->ready,
                  [&](const Stream::Ready& r) { return r.op == op.get(); });
  }
  op->executor.reset();
  op->end(std::move(result));
  changed_.notify_all();
}

Error Mailbox::lost(const Connection& connection) const {
  const int rank = connection.peer().value();
  const auto told = told_.find(&connection);
  if (told != told_.end()) return told->second;
  if (!connection.spoiled().empty()) {
    return {ErrorCode::kInternal, words_of_spoiled(connection, options_.rank)};
  }
  return {ErrorCode::kPeerLost, fmt::format("rank {} is lost: {}", rank, connection.over()), rank};
}

// The peer is told by the same stream. The operations on it end before the stream does.
void Mailbox::on_spoiled(Connection& connection) {
  auto& stream = static_cast<Stream&>(connection);
  stream.ready.clear();
  connection.drop_data(*this);
  if (options_.on_spoiled_frame) options_.on_spoiled_frame();
  connection.queue({.kind = wire::FrameKind::kAbort,
                    .index = static_cast<std::uint32_t>(ErrorCode::kInternal),
                    .rank = wire::kNoFrameRank},
                   words_of_spoiled(connection, options_.rank));
  touch(stream);
}

void Mailbox::finish_all(const Error& why) {
  broken_ = why;
  for (const auto* side : {&in_, &out_}) {
    for (const auto& connection : *side) {
      connection->ready.clear();
      if (connection->connected()) connection->drop_data(*this);
    }
  }
  const auto end = [&](const std::shared_ptr<Op>& op) { finish(op, why.within(op->text)); };
  while (!receives_.empty()) end(std::shared_ptr(receives_.front()));
  while (!moving_.empty()) end(std::shared_ptr(moving_.front()));
  letters_.clear();
}

// The receiver has answered an offer: it takes the message, or refuses it with an error.
void Mailbox::accepted(Stream& connection, const wire::Frame& frame, const std::string& text) {
  const auto found = std::ranges::find_if(moving_, [&](const auto& op) {
    return op->sends && op->number == frame.operation && op->peer == connection.peer().value();
  });
  if (found == moving_.end() || (*found)->executor) {
    connection.break_off("it accepted a message that was not offered");
    return;
  }
  // A copy, because finish() removes it from the list.
  const std::shared_ptr<Op> op = *found;  // NOLINT(performance-unnecessary-copy-initialization)
  if (frame.rank != 0) {
    // A receiver refuses only a message that differs from what it expects.
    finish(op, Error(ErrorCode::kMismatch, fmt::format("{}: {}", op->text, text)));
  } else if (op->elements == 0) {
    finish(op, ok_status());
  } else {
    start_executor(*op, true);
  }
}

void Mailbox::on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) {
  const auto rank = static_cast<std::size_t>(connection.peer().value());
  const bool outgoing = is_outgoing(connection);
  if (frame.kind == wire::FrameKind::kTaken && outgoing && eager_[rank] > 0) {
    --eager_[rank];
    return;
  }
  if (frame.kind == wire::FrameKind::kAccept && outgoing) {
    accepted(static_cast<Stream&>(connection), frame, text);
    return;
  }
  if (frame.kind == wire::FrameKind::kAbort) {
    told_.emplace(&connection, Error(error_code_of(frame.index), text));
    connection.break_off(text);
    return;
  }
  const bool is_letter =
      frame.kind == wire::FrameKind::kMessage && !outgoing && frame.rank < kDTypeCount &&
      offered_[rank] < kMostMessages + kEagerMessages &&
      (frame.started == 0
           ? text.empty()
           : frame.signature * size_of(static_cast<DType>(frame.rank)) == text.size());
  if (!is_letter) {
    connection.break_off("it sent a message that makes no sense");
    return;
  }
  ++offered_[rank];
  Letter letter{connection.peer().value(), frame, text};
  const auto receive =
      std::ranges::find_if(receives_, [&](const auto& op) { return fits(*op, letter); });
  if (receive == receives_.end()) {
    letters_.push_back(std::move(letter));
    return;
  }
  const std::shared_ptr<Op> op = std::move(*receive);
  receives_.erase(receive);
  deliver(op, letter);
}

Streamed* Mailbox::on_data(Connection& connection, const wire::Frame& frame) {
  for (const auto& op : moving_) {
    if (!op->sends && op->number == frame.operation && op->peer == connection.peer().value() &&
        op->executor && !is_outgoing(connection) && frame.index == 0 &&
        frame.length <= op->executor->outstanding(0)) {
      return op.get();
    }
  }
  connection.break_off("it sent data that no receive waits for");
  return nullptr;
}

void Mailbox::on_progress(Streamed& streamed) {
  auto& op = static_cast<Op&>(streamed);
  std::uint32_t send = 0;
  while (op.executor->poll_ready(send)) {
    Stream& connection = *out_[static_cast<std::size_t>(op.peer)];
    connection.ready.push_back({&op, send});
    touch(connection);
  }
}

bool Mailbox::next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) {
  auto& ready = static_cast<Stream&>(connection).ready;
  std::erase_if(ready, [](const auto& r) { return r.op->executor->ready(r.send).empty(); });
  if (ready.empty()) return false;
  const auto [op, send] = ready.front();
  const std::span<const std::byte> bytes = op->executor->ready(send);
  // Nobody sends a message on while it arrives.
  const std::size_t most = connection.longest_frame(std::numeric_limits<std::size_t>::max());
  out = {op, send, bytes.first(std::min(bytes.size(), most))};
  frame = {.kind = wire::FrameKind::kData,
           .operation = op->number,
           .length = static_cast<std::uint32_t>(out.bytes.size())};
  return true;
}

bool Mailbox::is_outgoing(const Connection& connection) const {
  return out_[connection.peer().index()].get() == &connection;
}

}  // namespace thalweg::net
