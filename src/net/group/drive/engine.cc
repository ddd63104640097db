#include "net/group/drive/engine.h"

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

// A rank that leaves waits at most this long until the others' systems have its last frames.
constexpr Duration kLongestLinger = Duration::milliseconds(1000);
// How often the engine looks into the store.
constexpr Duration kStoreEvery = Duration::milliseconds(1000);

}  // namespace

Result<std::shared_ptr<Engine>> Engine::make(EngineOptions options, std::vector<Fd> listeners) {
  Descriptors all{.streams = Fd(epoll_create1(EPOLL_CLOEXEC)),
                  .outer = Fd(epoll_create1(EPOLL_CLOEXEC)),
                  .wake = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                  .nudge = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  if (!all.streams.valid() || !all.outer.valid() || !all.wake.valid() || !all.nudge.valid()) {
    return system_error("cannot make an epoll", errno);
  }
  const auto add = [](const Fd& to, const Fd& fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd.get();
    return epoll_ctl(to.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  const bool all_added = std::ranges::all_of(
      listeners, [&](const Fd& listener) { return add(all.streams, listener, EPOLLIN); });
  if (!all_added || !add(all.streams, all.nudge, EPOLLIN) || !add(all.outer, all.wake, EPOLLIN) ||
      !add(all.outer, all.streams, EPOLLONESHOT)) {
    return system_error("cannot watch a socket", errno);
  }
  std::shared_ptr<Engine> engine(
      new Engine(std::move(options), std::move(listeners), std::move(all)));
  engine->thread_ = std::thread([raw = engine.get()] { raw->run_thread(); });
  return engine;
}

Engine::Engine(EngineOptions options, std::vector<Fd> listeners, Descriptors descriptors)
    : options_(std::move(options)),
      outer_(std::move(descriptors.outer)),
      wake_(std::move(descriptors.wake)),
      nudge_(std::move(descriptors.nudge)),
      exchange_(options_.streams, options_.notes_steps, std::move(listeners),
                std::move(descriptors.streams), mutex_, *this),
      core_(exchange_.core()),
      streams_(exchange_.streams()) {}

Engine::~Engine() { leave(); }

std::optional<Error> Engine::broken() {
  const Lock lock(mutex_);
  return core_.broken();
}

void Engine::say_goodbye() {
  const Lock lock(mutex_);
  stop();
}

void Engine::stop() {
  if (stopping_) return;
  stopping_ = true;
  linger_until_ = monotonic_now() + kLongestLinger;
  announced_ = announced_ || !core_.broken();
  exchange_.leave();
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
  streams_.stop_moving();
}

void Engine::linger() {
  exchange_.settle();
  while (!streams_.delivered() && monotonic_now() < linger_until_) {
    sched_yield();
    exchange_.settle();
  }
}

// Operations.

bool Engine::can_be_over_at_once(const Op& op) const {
  if (!op.awaited || op.is_dlcp || !op.plan || is_crowded()) return false;
  if (core_.broken() || !core_.numbers_are_left()) return false;
  if (driven_ || !running_.empty()) return false;
  return streams_.share_memory_with(op.plan->peers());
}

void Engine::start(const std::shared_ptr<Op>& op) {
  if (op->is_dlcp) static_cast<DlcpOperation&>(*op).prepare();
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
  core_.fail_without_numbers();
  if (!core_.broken() && op->plan) {
    // This unlocks the mutex, so it comes before other threads can see the operation.
    const Status connected = streams_.connect_to(lock, op->plan->peers(), op->deadline);
    if (!connected.ok()) core_.fail(connected.error());
  }
  if (core_.broken()) {
    exchange_.settle();
    op->end(core_.broken()->within(op->text));
    return;
  }
  begin(op);
  if (!op->is_dlcp || op->result) return;
  lock.unlock();
  static_cast<DlcpOperation&>(*op).run(shared_from_this());
  lock.lock();
}

void Engine::begin(const std::shared_ptr<Op>& op) {
  core_.start(*op);
  running_.push_back(op);
  if (op->notes && op->plan) op->notes->begin(*op->plan);
  if (op->peers().empty()) {
    core_.finish(*op);
    exchange_.settle();
    return;
  }
  const bool will_drive = op->awaited && !op->is_dlcp;  // the operation may be over soon
  if (op->is_dlcp) {
    static_cast<DlcpOperation&>(*op).begin(
        [this](std::size_t bytes) { return blocks_.take(bytes); });
  } else {
    exchange_.begin(static_cast<StreamOperation&>(*op));
  }
  if (!running_.empty() && !driven_ && !will_drive) arm();
  nudge();
}

void Engine::on_over(proto::CollectiveCall& call, Status status) {
  Op& op = static_cast<Op&>(call);
  exchange_.end(op);
  if (status.ok() && op.part_step) op.part_step(op);
  if (status.ok() && op.last_step) op.last_step();
  if (op.is_dlcp && !status.ok()) static_cast<DlcpOperation&>(op).cancel();
  op.end(std::move(status));
  // The pointer in running_ may be the last one.
  const auto place = std::ranges::find(running_, &op, &std::shared_ptr<Op>::get);
  CHECK(place != running_.end());
  const std::shared_ptr<Op> kept = std::move(*place);
  running_.erase(place);
  changed_.notify_all();
  nudge();
}

void Engine::on_done(DlcpOperation& op) {
  core_.finish(op);
  exchange_.settle();
}

void Engine::on_lost(DlcpOperation& op, Rank rank, const Error& why) {
  core_.on_lost(op, rank, why, monotonic_now());
  wake();
  exchange_.settle();
}

// Failure.

void Engine::on_broken(const Error& why) {
  if (options_.on_broken) options_.on_broken(why);
  eventfd_write(wake_.get(), 1);
}

void Engine::break_with(const Error& why) {
  const Lock lock(mutex_);
  core_.fail(why);
  exchange_.settle();
}

void Engine::call_roll() {
  const Lock lock(mutex_);
  core_.call_roll();
  exchange_.settle();
}

void Engine::fail_missing(Duration limit) {
  const Lock lock(mutex_);
  core_.fail_missing(limit);
  exchange_.settle();
}

void Engine::abandon(const Error& why) {
  inbox_.put(why);
  eventfd_write(wake_.get(), 1);
}

void Engine::consult(Lock& lock) {
  std::optional<Error> broken;
  std::optional<CallInWords> call;
  const Time now = monotonic_now();
  if (core_.broken()) {
    if (std::exchange(announced_, true)) return;
    broken = core_.broken();
  } else {
    if (running_.empty() || now < consult_at_) return;
    const Op& op = *running_.front();
    if (now < op.started + proto::CollectiveCall::kAskAfter) return;
    // A copy: the operation may be over before the answer is there.
    call = {op.number, op.signature, op.text};
    consult_at_ = now + kStoreEvery;
  }
  if (!options_.consult) return;
  lock.unlock();
  const std::optional<Error> failure = options_.consult(broken, call);
  lock.lock();
  if (!failure || core_.broken()) return;
  core_.fail(*failure);
  exchange_.settle();
}

// What other threads leave for the engine's thread.

void Engine::post(const std::shared_ptr<Op>& op) {
  op->set_times(monotonic_now());
  if (inbox_.put(op)) {
    eventfd_write(wake_.get(), 1);
  } else {
    start(op);  // the engine is broken: the operation ends with the reason
  }
}

void Engine::catch_up() {
  const std::optional<Error> why = inbox_.take_reason();
  if (!why) return;
  core_.fail(*why);
  exchange_.settle();
}

void Engine::take_posted(Lock& lock) {
  catch_up();
  for (const auto& op : inbox_.take_operations()) launch(op, lock);
}

}  // namespace thalweg::net
