// Work: what PyTorch holds of one call: one or more parts, each some operations of the
// communicator's with what is done before and after them.
//
// A part begins when it is started (by the caller's thread, or after copies from a device by the
// launcher's). When its operations are over, either the thread that waits for the work or the
// completer's does what is left to do; the last part completes the work and its future. No engine
// thread ever does, since futures may call Python.
//
// Invariants:
// 1. A work completes once, after all its parts; with the first error if there is one.
// 2. It lives until then, and with it the tensors that its operations use.
#pragma once

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

#include "stage.h"

namespace thalweg::python {

// A thread that does one thing after the other; it starts with the first of them.
class Worker {
 public:
  explicit Worker(const char* name) : name_(name) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns at once; after stop() a thread does it that nobody waits for.
  void push(std::function<void()> job);
  // Nothing was pushed that is not over.
  [[nodiscard]] bool idle() const;
  // Returns when all is done that was pushed; at once if the worker itself calls it.
  void stop();

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;  // the first is being done
    bool stopping = false;
  };
  static void run(const std::shared_ptr<State>& state);

  const char* name_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // with state_->mutex
};

using Operations = std::vector<Operation>;

struct Part {
  Stage stage;
  // Starts the part's operations, and appends them. May throw.
  std::function<void(const CallOptions& options, Operations& out)> start;
  // When they are over, before the stage copies back. None: nothing.
  std::function<void()> finish = {};

  // Of the work's.
  bool started = false;  // with the work's mutex_
  Operations operations = {};
  std::atomic<std::size_t> left = 1;  // operations, and the start itself
  std::atomic<bool> claimed = false;  // by the thread that does what is left to do
  std::exception_ptr failure = {};
};

class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, std::uint64_t sequence, std::string title,
       std::vector<at::Tensor> outputs, std::shared_ptr<Worker> completer);

  // The parts must be added in order, by one thread at a time, until seal().
  Part& add();
  // From any thread, in any order; once for each part.
  void start(Part& part, CallOptions options);
  // No part will follow.
  void seal();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void end_part(Part& part);
  void release();
  void complete();

  std::uint64_t sequence_;
  std::string title_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Worker> completer_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::atomic<std::size_t> left_ = 1;  // parts, and seal()
};

// An error of the communicator's as PyTorch has them.
[[noreturn]] void raise(const std::string& what);

}  // namespace thalweg::python
