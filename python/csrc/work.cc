#include "work.h"

#include <c10/core/StreamGuard.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace thalweg::python {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> make_future(const std::vector<at::Tensor>& outputs) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : outputs) {
    const c10::Device device = tensor.device();
    if (!device.is_cpu() && std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

std::int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct AtomicPhases {
  std::atomic<std::int64_t> parts = 0;
  std::atomic<std::int64_t> enqueue_ns = 0;
  std::atomic<std::int64_t> arrive_ns = 0;
  std::atomic<std::int64_t> start_ns = 0;
  std::atomic<std::int64_t> operation_ns = 0;
  std::atomic<std::int64_t> back_ns = 0;
};

AtomicPhases& phases() {
  static AtomicPhases all;
  return all;
}

void note_phases(const StageTimes& times, std::int64_t over_ns) {
  AtomicPhases& all = phases();
  ++all.parts;
  all.enqueue_ns += times.asked_ns - times.made_ns;
  all.arrive_ns += times.ready_ns - times.asked_ns;
  all.start_ns += times.started_ns - times.ready_ns;
  all.operation_ns += over_ns - times.started_ns;
  all.back_ns += clock_ns() - over_ns;
}

}  // namespace

PhaseTotals phase_totals() {
  const AtomicPhases& all = phases();
  return {all.parts, all.enqueue_ns, all.arrive_ns, all.start_ns, all.operation_ns, all.back_ns};
}

// The errors of a late operation and of a lost rank also hold the words of PyTorch and of its Gloo,
// which scripts look for.
void raise(const Error& error) {
  const std::string& what = error.message();
  const std::size_t late =
      std::min(what.find("not over within "), what.find("no such message came"));
  std::string words = what;
  if (late != std::string::npos) words.insert(late, "Timed out waiting: ");
  if (error.code() == ErrorCode::kPeerLost) words += " (Connection closed by peer)";
  throw BackendError(error, "thalweg: " + words);
}

void Worker::push(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->stopping) {
      state_->jobs.push_back(std::move(job));
      if (!thread_.joinable()) {
        thread_ = std::thread([state = state_] { run(state); });
        pthread_setname_np(thread_.native_handle(), name_);
      }
      state_->changed.notify_all();
      return;
    }
  }
  // The caller may hold locks, so it must not do the job itself.
  std::thread(std::move(job)).detach();
}

bool Worker::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->jobs.empty();
}

void Worker::stop() {
  if (getpid() != process_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    thread = std::move(thread_);
  }
  state_->changed.notify_all();
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

void Worker::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stopping || !state->jobs.empty(); });
    if (state->jobs.empty()) return;
    std::function<void()> job = state->jobs.front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    // The copy in the queue may be the last pointer to a work, so it is destroyed without the lock.
    job = std::move(state->jobs.front());
    state->jobs.pop_front();
    lock.unlock();
    job = nullptr;
    lock.lock();
  }
}

Work::Work(int rank, c10d::OpType type, std::uint64_t sequence, std::string title,
           std::vector<at::Tensor> outputs, std::shared_ptr<Worker> completer, bool awaited)
    : c10d::Work(rank, type, ("thalweg:" + title).c_str(), outputs),
      sequence_(sequence),
      title_(std::move(title)),
      outputs_(std::move(outputs)),
      completer_(std::move(completer)),
      awaited_(awaited),
      made_ns_(awaited ? clock_ns() : 0),
      future_(awaited ? nullptr : make_future(outputs_)) {}

Work::~Work() {
  if (!awaited_) return;
  for (const auto& part : parts_) {
    if (part->claimed) continue;
    for (const Operation& operation : part->operations) (void)operation.wait();
  }
}

Part& Work::add() {
  const std::lock_guard lock(mutex_);
  ++left_;
  Part& part = *parts_.emplace_back(std::make_unique<Part>());
  if (awaited_) part.stage.use_callers_stream();
  return part;
}

void Work::start(Part& part, CallOptions options, bool here) {
  const auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  const auto one_over = [self, &part] {
    if (--part.left > 0) return;
    self->completer_->push([self, &part] { self->end_part(part); });
  };
  if (!awaited_) options.on_over = one_over;
  // Operations may be over before all are started, so the count is too high by kMany until all are.
  constexpr std::size_t kMany = std::size_t{1} << 32U;
  part.left += kMany;
  Operations operations;
  std::exception_ptr failure;
  const bool timed = awaited_ && part.stage.on_device();
  const bool ran = here && part.run;
  if (timed) part.times = {.made_ns = made_ns_, .asked_ns = clock_ns()};
  try {
    part.stage.wait_until_ready();
    if (timed) part.times.ready_ns = clock_ns();
    if (ran) {
      if (timed) part.times.started_ns = part.times.ready_ns;
      const Status status = part.run(options);
      if (!status.ok()) raise(status.error());
    } else {
      part.start(options, operations);
      if (timed) part.times.started_ns = clock_ns();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  part.start = nullptr;  // both hold the communicator and would keep it alive
  part.run = nullptr;
  {
    const std::lock_guard lock(mutex_);
    part.failure = failure;
    part.operations = std::move(operations);
    part.started = true;
    // What is left are the operations that are not over, and this start.
    part.left -= kMany - part.operations.size();
  }
  cv_.notify_all();
  if (!awaited_) one_over();
  // Its result goes back to the device while the next part runs.
  if (ran) end_part(part);
}

void Work::seal() { release(); }

// Waits for the part's operations, and does what is left to do, unless another thread does.
void Work::end_part(Part& part) {
  if (part.claimed.exchange(true)) return;
  try {
    Status status = ok_status();
    for (const Operation& operation : part.operations) {
      Status one = operation.wait();
      if (status.ok() && !one.ok()) status = std::move(one);
    }
    if (part.failure) std::rethrow_exception(part.failure);
    if (!status.ok()) raise(status.error());
    const bool timed = awaited_ && part.stage.on_device();
    const std::int64_t over_ns = timed ? clock_ns() : 0;
    if (part.finish) part.finish();
    part.stage.copy_back();
    if (timed) note_phases(part.times, over_ns);
  } catch (...) {
    part.failure = std::current_exception();
  }
  release();
}

void Work::release() {
  if (--left_ == 0) complete();
}

void Work::complete() {
  std::exception_ptr failure;
  for (const auto& part : parts_) {
    if (part->failure && !failure) failure = part->failure;
  }
  finish(failure);
  if (!awaited_) fulfil(*future_, failure);
}

void Work::fulfil(c10::ivalue::Future& future, const std::exception_ptr& failure) {
  c10::OptionalStreamGuard guard;
  for (const auto& part : parts_) {
    if (!part->stage.on_device()) continue;
    // The future's events are recorded on the current streams.
    guard.reset_stream(*part->stage.stream());
    part->stage.block_current_stream();
  }
  if (failure) {
    future.setError(failure);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

// Only the caller of an awaited work's call gets the work, after its end.
c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = make_future(outputs_);
    fulfil(*future_, exception_);
  }
  return future_;
}

bool Work::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool Work::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

int Work::sourceRank() const {
  TORCH_CHECK(parts_.size() == 1 && parts_[0]->operations.size() == 1,
              "sourceRank: only a receive has one");
  return parts_[0]->operations[0].source();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (timeout > std::chrono::milliseconds(0)) {
    if (!cv_.wait_for(lock, timeout, [&] { return completed_; })) {
      lock.unlock();
      raise({ErrorCode::kTimeout,
             title_ + ": Timed out waiting " + std::to_string(timeout.count()) + "ms"});
    }
  } else {
    // The thread that waits ends the parts itself, once they have started.
    for (const auto& part : parts_) {
      cv_.wait(lock, [&] { return part->started || completed_; });
      lock.unlock();
      end_part(*part);
      lock.lock();
    }
    cv_.wait(lock, [&] { return completed_; });
  }
  const std::exception_ptr failure = exception_;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
  synchronize();
  return true;
}

void Work::synchronize() {
  for (const auto& part : parts_) part->stage.block_current_stream();
}

}  // namespace thalweg::python
