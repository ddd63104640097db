#include "net/collective/engine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "net/system.h"

namespace thalweg {
namespace {

constexpr std::size_t kReadBuffer = std::size_t{512} << 10;
constexpr std::uint32_t kMostOperations = ~std::uint32_t{0};
// One who leaves waits no longer than this for the others' systems to take what it says.
constexpr Duration kLongestLinger = Duration::milliseconds(1000);
// The most of one data frame: an operation that is more urgent waits for no more than this.
constexpr std::size_t kMostFrame = std::size_t{1} << 20;

}  // namespace

Result<std::shared_ptr<Engine>> Engine::make(EngineOptions options, std::vector<Fd> listeners) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd outer(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd nudge(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !outer.valid() || !wake.valid() || !nudge.valid()) {
    return system_error("cannot make an epoll", errno);
  }
  const auto add = [](const Fd& to, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(to.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  const bool all_added = std::ranges::all_of(
      listeners, [&](const Fd& listener) { return add(epoll, listener.get(), EPOLLIN); });
  if (!all_added || !add(epoll, nudge.get(), EPOLLIN) || !add(outer, wake.get(), EPOLLIN) ||
      !add(outer, epoll.get(), EPOLLONESHOT)) {
    return system_error("cannot watch a socket", errno);
  }
  std::shared_ptr<Engine> engine(new Engine(std::move(options), std::move(listeners),
                                            std::move(epoll), std::move(outer), std::move(wake),
                                            std::move(nudge)));
  engine->thread_ = std::thread([raw = engine.get()] { raw->run_thread(); });
  return engine;
}

Engine::Engine(EngineOptions options, std::vector<Fd> listeners, Fd epoll, Fd outer, Fd wake,
               Fd nudge)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      outer_(std::move(outer)),
      wake_(std::move(wake)),
      nudge_(std::move(nudge)),
      connections_(static_cast<std::size_t>(options_.size)),
      buffer_(kReadBuffer) {
  if (options_.moves_apart) learn_cores();
  for (Fd& listener : listeners) listeners_.emplace_back(std::move(listener), kMaxNewcomers);
  for (std::size_t r = 0; r < connections_.size(); ++r) {
    connections_[r] = std::make_unique<Connection>(Rank(static_cast<std::int32_t>(r)));
  }
}

Engine::~Engine() { leave(); }

void Engine::say_goodbye() {
  const Lock lock(mutex_);
  stop();
}

void Engine::stop() {
  if (stopping_) return;
  stopping_ = true;
  linger_until_ = monotonic_now() + kLongestLinger;
  if (broken_.empty()) {
    broken_ = "this rank has left";
    announced_ = true;
    end_all({.kind = FrameKind::kLeave, .started = started_}, "");
  }
  settle();
}

void Engine::leave() {
  {
    const Lock lock(mutex_);
    stop();
    if (std::exchange(left_, true)) return;
    linger();
    eventfd_write(wake_.get(), 1);
  }
  thread_.join();
}

std::string Engine::broken() {
  const Lock lock(mutex_);
  return broken_;
}

void Engine::set_times(Op& op) {
  op.started = monotonic_now();
  op.deadline = op.started + op.limit;
  op.ask_at = op.started + std::min(kAskAfter, op.limit / 4);
}

bool Engine::can_be_over_at_once(const Op& op) const {
  if (!op.awaited || op.dlcp || !op.plan || is_crowded()) return false;
  if (!broken_.empty() || started_ == kMostOperations || driven_ || !running_.empty()) return false;
  return std::ranges::all_of(op.plan->peers(), [&](const Rank peer) {
    const Connection& connection = *connections_[peer.index()];
    return connection.reads_shared() && connection.writes_shared() && connection.connected();
  });
}

void Engine::start(const std::shared_ptr<Op>& op) {
  Lock lock(mutex_);
  if (can_be_over_at_once(*op)) {
    disarm();
    begin(op);
    look_first(*op);
    // Only now somebody else may look at it. The clock would be a tenth of the time of a small one.
    op->at_once = op->result.has_value();
    if (!op->at_once) set_times(*op);
    return;
  }
  set_times(*op);
  launch(op, lock);
}

void Engine::launch(const std::shared_ptr<Op>& op, Lock& lock) {
  if (broken_.empty() && started_ == kMostOperations) {
    fail(kNoFrameRank, fmt::format("all numbers of operations up to {} are used: make another "
                                   "communicator",
                                   kMostOperations));
    settle();
  }
  if (broken_.empty() && op->plan) {
    // Without the mutex, so before the operation can be seen by others.
    const Status connected = connect_to(lock, op->plan->peers(), op->deadline);
    if (!connected.ok()) {
      fail(kNoFrameRank, connected.error().message());
      settle();
    }
  }
  if (!broken_.empty()) {
    op->end(Error(fmt::format("{}: {}", op->text, broken_)));
    return;
  }
  begin(op);
  if (op->chunks) {
    lock.unlock();
    start_dlcp(op);
    lock.lock();
  }
}

void Engine::begin(const std::shared_ptr<Op>& op) {
  op->number = ++started_;
  Past& past = past_[op->number % kPast];
  past.number = op->number;
  // Of the text: with the same one it is there already.
  if (std::exchange(past.signature, op->signature) != op->signature) past.text = op->text;
  running_.push_back(op);
  if (!op->plan || op->plan->peers().empty()) {
    finish(*op, ok_status());
    return;
  }
  if (op->dlcp) {
    op->chunks = std::make_unique<ChunkExecutor>(
        *op->plan, op->type, op->op, op->dlcp->segment_elements, op->memory,
        [this](std::size_t bytes) { return blocks_.take(bytes); });
    expect_parts(*op);
    if (!driven_) arm();
    return;
  }
  if (spare_.empty()) spare_.push_back(std::make_unique<Executor>());
  op->executor = std::move(spare_.back());
  spare_.pop_back();
  op->executor->start(*op->plan, op->type, op->op, op->memory);
  on_progress(*op);
  for (const Rank peer : op->plan->peers()) {
    Connection& connection = *connections_[peer.index()];
    // Others may be in the midst of operations, and would not send this one's data yet.
    if (running_.size() > 1 && connection.connected()) {
      connection.queue({.kind = FrameKind::kStarted, .started = started_}, "");
      touch(connection);
    }
    if (connection.stalled()) {
      connection.resume(*this);
      touch(connection);  // it is to be watched again
    }
  }
  settle();
  if (!running_.empty() && !driven_ && !op->awaited) arm();
  nudge();
}

Engine::Op* Engine::find(std::uint32_t number) {
  for (const auto& op : running_) {
    if (op->number == number) return op.get();
  }
  return nullptr;
}

void Engine::finish(Op& op, Status result) {
  if (result.ok() && op.part_step) op.part_step(op);
  if (result.ok() && op.last_step) op.last_step();
  if (op.executor) spare_.push_back(std::move(op.executor));
  // Transfers hold the operation, and with it the memory they use.
  if (!result.ok()) {
    for (const Transfer& transfer : op.transfers) transfer.cancel();
  }
  op.end(std::move(result));
  if (op.plan) {
    for (const Rank peer : op.plan->peers()) {
      std::erase_if(connections_[peer.index()]->ready,
                    [&](const Connection::Ready& r) { return r.op == &op; });
    }
  }
  // The deque's pointer may be the last.
  const auto place = std::ranges::find(running_, &op, &std::shared_ptr<Op>::get);
  CHECK(place != running_.end());
  const std::shared_ptr<Op> kept = std::move(*place);
  running_.erase(place);
  changed_.notify_all();
  nudge();
}

void Engine::on_progress(Op& op) {
  std::uint32_t send = 0;
  while (op.executor->poll_ready(send)) {
    Connection& connection = *connections_[op.plan->sends()[send].target.index()];
    const auto same = [&](const Connection::Ready& r) { return r.op == &op && r.send == send; };
    if (std::ranges::none_of(connection.ready, same)) connection.ready.push_back({&op, send});
    touch(connection);
  }
}

void Engine::touch(Connection& connection) {
  if (connection.dirty) return;
  connection.dirty = true;
  dirty_.push_back(&connection);
}

bool Engine::has_data_for(const Op& op, Rank peer) {
  if (!op.executor) return false;
  const auto& sends = op.plan->sends();
  for (std::uint32_t i = 0; i < sends.size(); ++i) {
    if (sends[i].target == peer && !op.executor->sent_all(i)) return true;
  }
  return false;
}

bool Engine::needs(const Op& op, Rank peer) {
  // What goes over DLCP hears of it from there, behind what the peer still sent.
  if (!op.executor) return false;
  const auto& arrivals = op.plan->arrivals();
  for (std::uint32_t slot = 0; slot < arrivals.size(); ++slot) {
    if (arrivals[slot].source == peer && op.executor->outstanding(slot) > 0) return true;
  }
  return has_data_for(op, peer);
}

bool Engine::may_send(const Op& op, const Connection& connection) const {
  if (op.number <= connection.peer_started) return true;
  return std::ranges::none_of(running_, [&](const auto& older) {
    return older->number < op.number && has_data_for(*older, connection.peer());
  });
}

bool Engine::next_data(Connection& connection, Frame& frame, Connection::Outgoing& out) {
  auto& ready = connection.ready;
  std::erase_if(ready, [&](const auto& r) {
    return r.op->executor->ready(r.send).size() == connection.lent(r.op, r.send);
  });
  if (ready.empty()) return false;
  const auto before = [](const Connection::Ready& a, const Connection::Ready& b) {
    return std::tuple(a.op->priority, a.op->number, a.send) <
           std::tuple(b.op->priority, b.op->number, b.send);
  };
  const Connection::Ready* best = nullptr;
  for (const auto& r : ready) {
    if (best != nullptr && !before(r, *best)) continue;
    if (may_send(*r.op, connection)) best = &r;
  }
  if (best == nullptr) return false;
  const std::span<const std::byte> bytes =
      best->op->executor->ready(best->send).subspan(connection.lent(best->op, best->send));
  const std::size_t most = connection.has_lanes() ? kLaneFrame : kMostFrame;
  out = {best->op, best->send, bytes.first(std::min(bytes.size(), most))};
  frame.kind = FrameKind::kData;
  frame.operation = best->op->number;
  frame.slot = best->op->plan->sends()[best->send].slot;
  frame.length = static_cast<std::uint32_t>(out.bytes.size());
  frame.signature = best->op->signature;
  frame.started = started_;
  frame.rank = static_cast<std::uint32_t>(sched_getcpu() + 1);
  return true;
}

Engine::Called Engine::called_as(std::uint32_t number, const Op* op) const {
  if (op != nullptr) return {true, op->signature, op->text};
  const Past& past = past_[number % kPast];
  return {past.number == number, past.signature, past.text};
}

Engine::Op* Engine::on_data(Connection& connection, const Frame& frame) {
  if (frame.rank != 0) connection.core = static_cast<std::int64_t>(frame.rank) - 1;
  if (frame.operation > started_) {
    if (!connection.stalled()) connection.stalled_at = monotonic_now();
    return nullptr;
  }
  Op* op = find(frame.operation);
  const Called called = called_as(frame.operation, op);
  if (called.known && called.signature != frame.signature) {
    // The peer finds out by our question what both called, and says so to all.
    connection.drop_arrivals();
    connection.queue({.kind = FrameKind::kAsk,
                      .operation = frame.operation,
                      .signature = called.signature,
                      .started = started_},
                     called.text);
    touch(connection);
    return nullptr;
  }
  const bool fits = op != nullptr && op->executor && frame.slot < op->plan->arrivals().size() &&
                    op->plan->arrivals()[frame.slot].source == connection.peer() &&
                    frame.length <= op->executor->outstanding(frame.slot);
  if (!fits) {
    connection.break_off("it sent data that no operation waits for");
    return nullptr;
  }
  return op;
}

void Engine::on_frame(Connection& connection, const Frame& frame, const std::string& text) {
  switch (frame.kind) {
    case FrameKind::kStarted:
      touch(connection);
      break;
    case FrameKind::kAsk:
      answer(connection, frame, text);
      break;
    case FrameKind::kAnswer:
      connection.answer = {frame.operation, frame.rank, frame.signature, text};
      if (Op* op = find(frame.operation);
          op != nullptr && frame.signature != 0 && frame.signature != op->signature) {
        report_difference(connection, frame.operation, op->text, text);
      }
      break;
    case FrameKind::kAbort:
      fail(frame.rank, text);
      break;
    case FrameKind::kLeave:
      connection.peer_left = true;
      connection.break_off("it has left");
      break;
    case FrameKind::kOffer:
      take_offer(connection, frame);
      break;
    case FrameKind::kShared:
      // Who offered it comes second.
      if (connection.peer().value() < options_.rank) {
        connection.shared()->close_offer();
        connection.use_shared();
        touch(connection);
      }
      break;
    case FrameKind::kHello:
    case FrameKind::kData:
    case FrameKind::kMessage:
    case FrameKind::kTaken:
    case FrameKind::kAccept:
    case FrameKind::kLaneData:
      connection.break_off("it sent a frame that does not belong here");
      break;
  }
}

void Engine::fail(std::uint32_t culprit, const std::string& text) {
  if (!broken_.empty()) return;
  broken_ = text;
  if (options_.on_broken) options_.on_broken(text);
  end_all({.kind = FrameKind::kAbort, .started = started_, .rank = culprit}, text);
  eventfd_write(wake_.get(), 1);
}

void Engine::end_all(const Frame& last, const std::string& words) {
  for (Connection* connection : open_) {
    if (!connection->connected()) continue;
    connection->drop_data(*this);
    connection->queue(last, words);
    touch(*connection);
  }
  while (!running_.empty()) {
    Op& op = *running_.front();
    // One whose last bytes came right before these words has all it needs.
    const bool done = op.executor && op.executor->done();
    finish(op, done ? ok_status() : Status(Error(fmt::format("{}: {}", op.text, broken_))));
  }
}

}  // namespace thalweg
