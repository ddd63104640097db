// Backend: Thalweg as a backend of torch.distributed, for tensors on the CPU and on devices.
//
// A collective is divided into parts (work.h), which start in the order of the calls, which is the
// same on all ranks. The caller's thread starts a part at once. If the part waits for a copy from a
// device, the launcher's thread starts it, and later calls queue up behind it; but if the caller
// waits for the result anyway, its thread waits for the copy and starts the part itself. Messages
// are not part of that order.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "tensors.h"
#include "versions.h"
#include "work.h"

namespace thalweg::python {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct BackendOptions final : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds group_timeout)
      : Options("thalweg", group_timeout) {}
#if TORCH_VERSION_MINOR >= 14
  c10::intrusive_ptr<Options> clone() const override {
    return c10::make_intrusive<BackendOptions>(*this);
  }
#endif
};

// Options of a reduction of gradients: how much it may lose, and how urgent it is.
struct GradientOptions {
  double loss_bound = 0;          // above 0: over DLCP
  double result_loss_bound = -1;  // below 0: half of loss_bound
  bool dlcp = false;              // over DLCP also if the bound is 0
  int priority = 0;
  int queue = 1;  // CallOptions::dlcp_queue
  // For error feedback: contiguous, with the tensor's size, type and device; undefined: none
  at::Tensor residual = {};
};

class Backend final : public c10d::Backend {
 public:
  // Connects to the other ranks. shutdown_all() knows the backends made here.
  static c10::intrusive_ptr<Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int size, std::chrono::milliseconds timeout,
                                          const CommunicatorOptions& options);
  // The same for ranks that have meeting places (thalweg/meeting_place.h): options.place and
  // options.places, with options.group. Waits for no other rank.
  static c10::intrusive_ptr<Backend> make_at(int rank, std::chrono::milliseconds timeout,
                                             const CommunicatorOptions& options);
  // Shuts down every backend of this process that still exists.
  static void shutdown_all();
  Backend(int rank, int size, std::chrono::milliseconds timeout, const CommunicatorOptions& options,
          std::shared_ptr<Communicator> communicator);
  ~Backend() override;

  const std::string getBackendName() const override { return "thalweg"; }
  c10::intrusive_ptr<Options> getBackendOptions() THALWEG_OVERRIDE_SINCE_2_9 { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) THALWEG_OVERRIDE_SINCE_2_9 {
    options_->timeout = timeout;
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& to,
                        std::vector<std::int64_t>& from,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int target, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const THALWEG_OVERRIDE_SINCE_2_7 { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  bool supportsSplitting() const override { return kSplits; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) THALWEG_OVERRIDE_SINCE_2_9;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
#if TORCH_VERSION_MINOR >= 7
  c10d::ErrorType getError() override;
#endif
  // Why every later call fails, once the group is broken; none before. After abort() and shutdown()
  // it is what was known then.
  [[nodiscard]] std::optional<Error> broken() const;
  // Both end the operations in flight, and every later call fails. shutdown() waits until the
  // communicator's threads have ended; abort() leaves that to a thread of its own.
  void abort() THALWEG_OVERRIDE_SINCE_2_7;
  // Communicator::has_switch().
  [[nodiscard]] bool has_switch() const { return living()->has_switch(); }
  // Communicator::auto_choices().
  [[nodiscard]] std::vector<AutoDecision> auto_choices() const { return living()->auto_choices(); }
  void shutdown() THALWEG_OVERRIDE_SINCE_2_7 { leave("the process group was shut down"); }

  // Allreduce of a gradient in place, by mean or by sum.
  WorkPtr reduce_gradient(at::Tensor tensor, bool mean, const GradientOptions& gradient);

 private:
  // One call of the API: its name for users and profilers, its timeout, its results and its
  // options.
  struct Call {
    c10d::OpType type;
    const char* name;
    std::chrono::milliseconds timeout;
    bool async = true;
    Tensors outputs = {};
    CallOptions options = {};
    at::Tensor residual = {};  // CallOptions::residual
  };
  using OwnWork = c10::intrusive_ptr<Work>;

  OwnWork begin(const Call& call);
  // Call after all parts were added. Returns the work for the caller. If the call is not
  // asynchronous, the work is over.
  WorkPtr finish(const OwnWork& work, const Call& call);
  // Starts the parts now, or after those that the launcher still has to start. No other call's
  // parts come between them.
  void launch(const OwnWork& work, const std::vector<Part*>& parts, const Call& call);
  void launch(const OwnWork& work, Part& part, const Call& call) { launch(work, {&part}, call); }
  // The same for messages, which do not wait for collectives.
  void launch_message(const OwnWork& work, Part& part, const Call& call);
  [[nodiscard]] CallOptions options_for(const Call& call) const;
  // Null once this rank has left the group.
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const;
  // The same, but throws instead of returning null.
  [[nodiscard]] std::shared_ptr<Communicator> living() const;
  void leave(const char* why);
  // Takes the communicator away; null if another thread did.
  std::shared_ptr<Communicator> take(const char* why);

  // Collectives. Each adds one or more parts to a work.
  void add_allreduce(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                     const c10d::ReduceOp& op);
  void add_allreduce_pieces(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                            const Reduction& reduction);
  void add_broadcast(const OwnWork& work, const Call& call, const at::Tensor& tensor, int root);
  // At the root the result goes to `into`, which may be `tensor`.
  void add_reduce(const OwnWork& work, const Call& call, const at::Tensor& tensor, int root,
                  const c10d::ReduceOp& op, const at::Tensor& into);
  void add_allgather(const OwnWork& work, const Call& call, const at::Tensor& output,
                     const at::Tensor& input);
  void add_allgather_list(const OwnWork& work, const Call& call, const Tensors& outputs,
                          const at::Tensor& input);
  // `inputs` is one tensor that holds the parts of all ranks, or a list with one tensor per rank.
  void add_reduce_scatter(const OwnWork& work, const Call& call, const at::Tensor& output,
                          const Tensors& inputs, const c10d::ReduceOp& op);
  // Sends tensors of any sizes to every rank, and receives from every rank, by messages.
  using Exchange = std::pair<Tensors, Tensors>;  // tensors from each rank, tensors to each rank
  WorkPtr exchange(const Call& call, const std::function<Exchange(Stage&)>& lay_out);
  WorkPtr message(Tensors& tensors, bool sends, int peer, int tag);
  // The next three block. Their collectives are launched in the order of calls, like all others.
  void run(const Call& call, const std::function<void(const OwnWork&)>& lay_out);
  void reduce_sparse(const at::Tensor& tensor, const Call& call, const c10d::ReduceOp& op);
  // Gathers tensors that all have the same first size, which may differ between ranks; other sizes
  // may not. Returns [tensor][rank].
  std::vector<Tensors> gather_uneven(const Tensors& tensors, const Call& call);
  void check_root(const char* name, std::int64_t root) const;

  c10::intrusive_ptr<BackendOptions> options_;
  CommunicatorOptions communicator_options_;
  std::atomic<std::uint64_t> sequence_ = 0;
  pid_t process_ = getpid();  // the one that made the backend; a child cannot use it
  std::shared_ptr<Worker> completer_ = std::make_shared<Worker>("thalweg-done");
  Worker launcher_{"thalweg-launch"};
  Worker messenger_{"thalweg-message"};  // messages that wait for a copy from a device
  std::mutex launch_mutex_;              // the order of starts
  // A caller's thread starts a part of an awaited work. Later parts go to the launcher, which waits
  // for that. Shared with jobs that may outlive the backend.
  std::shared_ptr<std::atomic<bool>> starting_ = std::make_shared<std::atomic<bool>>(false);
  OwnWork coalesced_ = {};    // between startCoalescing() and endCoalescing()
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Communicator> communicator_;
  std::string left_;             // why communicator_ is null
  std::optional<Error> broken_;  // why it was broken then
};

}  // namespace thalweg::python
