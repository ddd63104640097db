#include "net/group/drive/engine.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kReadBuffer = std::size_t{512} << 10;
// A rank that leaves waits at most this long until the others' systems have its last frames.
constexpr Duration kLongestLinger = Duration::milliseconds(1000);

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
      core_(Rank(options_.rank), options_.size),
      connections_(static_cast<std::size_t>(options_.size)),
      buffer_(kReadBuffer) {
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
  if (!core_.broken()) {
    announced_ = true;
    core_.leave();
    noticed_ = true;
    drop_data();
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

std::optional<Error> Engine::broken() {
  const Lock lock(mutex_);
  return core_.broken();
}

bool Engine::can_be_over_at_once(const Op& op) const {
  if (!op.awaited || op.dlcp || !op.plan || is_crowded()) return false;
  if (core_.broken() || !core_.numbers_are_left()) return false;
  if (driven_ || !running_.empty()) return false;
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
    // The times matter only now, because only now other threads may see the operation. Reading the
    // clock would take a tenth of the time of a small one.
    op->at_once = op->result.has_value();
    if (!op->at_once) op->set_times(monotonic_now());
    return;
  }
  op->set_times(monotonic_now());
  launch(op, lock);
}

void Engine::launch(const std::shared_ptr<Op>& op, Lock& lock) {
  if (!core_.broken() && !core_.numbers_are_left()) {
    core_.fail({ErrorCode::kNoResource,
                fmt::format("all numbers of operations up to {} are used: make another "
                            "communicator",
                            core_.started())});
    settle();
  }
  if (!core_.broken() && op->plan) {
    // This unlocks the mutex, so it comes before other threads can see the operation.
    const Status connected = connect_to(lock, op->plan->peers(), op->deadline);
    if (!connected.ok()) {
      core_.fail(connected.error());
      settle();
    }
  }
  if (core_.broken()) {
    op->end(core_.broken()->within(op->text));
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
  core_.start(*op);
  running_.push_back(op);
  if (op->notes && op->plan) op->notes->begin(*op->plan);
  if (op->peers().empty()) {
    core_.finish(*op);
    end_over();
    return;
  }
  if (op->dlcp) {
    op->chunks = std::make_unique<exec::SegmentExecutor>(
        *op->plan, op->type, op->op, op->dlcp->layout, op->memory,
        [this](std::size_t bytes) { return blocks_.take(bytes); });
    expect_parts(*op);
    if (!driven_) arm();
    return;
  }
  if (spare_.empty()) spare_.push_back(std::make_unique<exec::Executor>());
  op->executor = std::move(spare_.back());
  spare_.pop_back();
  op->executor->start(*op->plan, op->type, op->op, op->memory);
  on_progress(*op);
  for (const Rank peer : op->plan->peers()) {
    Connection& connection = *connections_[peer.index()];
    if (!connection.stalled()) continue;
    note_resumed(*op, peer);
    connection.resume(*this);
    touch(connection);  // so that it is watched again
  }
  settle();
  if (!running_.empty() && !driven_ && !op->awaited) arm();
  nudge();
}

void Engine::finish(Op& op, Status result) {
  if (op.notes) note_end(op);
  if (result.ok() && op.part_step) op.part_step(op);
  if (result.ok() && op.last_step) op.last_step();
  if (op.executor) spare_.push_back(std::move(op.executor));
  // Transfers hold a pointer to the operation, and with it the memory that they use.
  if (!result.ok()) {
    for (const Transfer& transfer : op.transfers) transfer.cancel();
  }
  op.end(std::move(result));
  // The pointer in running_ may be the last one.
  const auto place = std::ranges::find(running_, &op, &std::shared_ptr<Op>::get);
  CHECK(place != running_.end());
  const std::shared_ptr<Op> kept = std::move(*place);
  running_.erase(place);
  changed_.notify_all();
  nudge();
}

void Engine::on_progress(Op& op) {
  if (op.notes) op.notes->look(*op.executor, monotonic_now());
  std::uint32_t send = 0;
  while (op.executor->poll_ready(send)) {
    const Rank target = op.plan->sends()[send].target;
    core_.add_ready(op, send, target);
    touch(*connections_[target.index()]);
  }
}

void Engine::touch(Connection& connection) {
  if (connection.dirty) return;
  connection.dirty = true;
  dirty_.push_back(&connection);
}

void Engine::notice_break() {
  if (!core_.broken() || std::exchange(noticed_, true)) return;
  if (core_.broken()->code() == ErrorCode::kCancelled) {
    options_.log.trace("leaves: {}", core_.broken()->message());
  } else {
    options_.log.warn("the communicator is broken: {}", core_.broken()->message());
  }
  if (options_.on_broken) options_.on_broken(*core_.broken());
  drop_data();
  eventfd_write(wake_.get(), 1);
}

void Engine::drop_data() {
  for (Connection* connection : open_) {
    if (!connection->connected()) continue;
    connection->drop_data(*this);
    touch(*connection);
  }
}

void Engine::send_control() {
  Rank peer{0};
  proto::ControlFrame frame;
  std::string text;
  while (core_.poll_control(peer, frame)) {
    Connection& connection = *connections_[peer.index()];
    if (!connection.connected()) continue;
    const wire::Frame header = proto::wire_frame(frame, core_.started(), text);
    connection.queue(header, text);
    touch(connection);
  }
}

void Engine::end_over() {
  proto::CollectiveCall* call = nullptr;
  Status status = ok_status();
  while (core_.poll_over(call, status)) finish(static_cast<Op&>(*call), std::move(status));
}

}  // namespace thalweg::net
