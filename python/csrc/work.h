// Work: PyTorch's handle of one call. It has one or more parts; each has some operations of the
// communicator, and what is to be done before and after them.
//
// The caller's thread starts a part, or after copies from a device the launcher's thread. When the
// part's operations are over, the thread that waits for the work, or the completer's thread, does
// what is left to do. The last part completes the work and its future. An engine's thread never
// does, because futures may call Python.
//
// If the call that makes the work also waits for it, the work is *awaited*: no other thread ever
// does what is left to do, so no thread is woken, and its future is made only if someone asks.
//
// Invariants:
// 1. A work completes once, after all its parts; with the first error if there is one.
// 2. It lives until then, and with it the tensors that its operations use. (An awaited work that a
//    failed call drops waits for its operations first.)
#pragma once

#include <unistd.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "raise.h"
#include "stage.h"

namespace thalweg::python {

// A thread that does one job after the other. It starts with the first job.
class Worker {
 public:
  explicit Worker(const char* name) : name_(name) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns at once. After stop(), a detached thread does the job.
  void push(std::function<void()> job);
  // All jobs that were pushed are done.
  [[nodiscard]] bool idle() const;
  // Returns when all jobs that were pushed are done; at once if the worker's own thread calls it,
  // or in a child of the process that made the worker, which has no such thread.
  void stop();

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;  // the first is in progress
    bool stopping = false;
  };
  static void run(const std::shared_ptr<State>& state);

  const char* name_;
  pid_t process_ = getpid();
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // guarded by state_->mutex
};

using Operations = std::vector<Operation>;

// When the steps of a part with tensors on a device were over, by the monotonic clock.
struct StageTimes {
  std::int64_t made_ns = 0;     // the work was made
  std::int64_t asked_ns = 0;    // copies to the host are enqueued; the operations may be started
  std::int64_t ready_ns = 0;    // the elements are on the host
  std::int64_t started_ns = 0;  // the operations are started
};

// Where the time of awaited works with tensors on a device went, in all parts so far: sums since
// the process began. The phases follow each other, except that parts of one work overlap.
struct PhaseTotals {
  std::int64_t parts = 0;
  std::int64_t enqueue_ns = 0;    // making the work, and enqueuing copies to the host
  std::int64_t arrive_ns = 0;     // until the elements were on the host
  std::int64_t start_ns = 0;      // starting the operations
  std::int64_t operation_ns = 0;  // until the operations were over
  std::int64_t back_ns = 0;       // enqueuing copies to the device
};
[[nodiscard]] PhaseTotals phase_totals();

struct Part {
  Stage stage;
  // Starts the part's operations and appends them to `out`. May throw.
  std::function<void(const CallOptions& options, Operations& out)> start;
  // Does the same and blocks until the result is there, which is faster. May be empty. Only for
  // awaited works, whose parts then run one after the other.
  std::function<Status(const CallOptions& options)> run = {};
  // Called when the operations are over, before the stage copies back. May be empty.
  std::function<void()> finish = {};

  // Used by the work.
  StageTimes times = {};
  bool started = false;  // guarded by the work's mutex_
  Operations operations = {};
  std::atomic<std::size_t> left = 1;  // operations that are not over, and the start itself
  std::atomic<bool> claimed = false;  // a thread does what is left to do
  std::exception_ptr failure = {};
};

class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, std::uint64_t sequence, std::string title,
       std::vector<at::Tensor> outputs, std::shared_ptr<Worker> completer, bool awaited = false);
  ~Work() override;

  // Adds a part. One thread at a time may call it, in order, until seal().
  Part& add();
  // Starts a part. Any thread may call it, in any order, once for each part. `here`: this thread
  // made the part, and may run it to its end.
  void start(Part& part, CallOptions options, bool here = false);
  [[nodiscard]] bool awaited() const { return awaited_; }
  // Call after the last part was added.
  void seal();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void end_part(Part& part);
  void release();
  void complete();
  // Completes the future as the work is.
  void fulfil(c10::ivalue::Future& future, const std::exception_ptr& failure);

  std::uint64_t sequence_;
  std::string title_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Worker> completer_;
  const bool awaited_;
  std::int64_t made_ns_ = 0;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // of an awaited work: guarded by mutex_
  std::vector<std::unique_ptr<Part>> parts_;
  std::atomic<std::size_t> left_ = 1;  // parts that are not over, and seal()
};

// An error of the communicator as PyTorch translates it to Python, wherever it passes on its way:
// in a call of the backend, in Work.wait(), in a future, or in the backward pass that waits for
// one.
class BackendError final : public torch::PyTorchError {
 public:
  BackendError(const Error& error, std::string words)
      : PyTorchError(std::move(words)), code_(error.code()), rank_(error.rank()) {}
  // The caller holds Python's lock.
  PyObject* python_type() override { return exception_class(code_, rank_); }

 private:
  ErrorCode code_;
  std::optional<int> rank_;
};

// Throws a BackendError.
[[noreturn]] void raise(const Error& error);

}  // namespace thalweg::python
