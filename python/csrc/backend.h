// Backend: Thalweg as a backend of torch.distributed, for tensors of the CPU and of devices.
//
// A collective is laid out in parts (work.h) and started in the order of the calls, which is the
// same on all ranks: at once by the caller's thread, or, if a part waits for a copy from a device,
// by the launcher's thread, behind which later calls queue up. Messages take no part in that order.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "tensors.h"
#include "work.h"

namespace thalweg::python {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct BackendOptions final : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds group_timeout)
      : Options("thalweg", group_timeout) {}
};

// How a reduction may lose data, and when it goes.
struct GradientOptions {
  double loss_bound = 0;          // above 0: over DLCP
  double result_loss_bound = -1;  // below 0: half of loss_bound
  bool dlcp = false;              // also if the bound is 0
  int priority = 0;
  int queue = 1;             // CallOptions::dlcp_queue
  at::Tensor residual = {};  // of error feedback: as the tensor, contiguous; undefined: none
};

class Backend final : public c10d::Backend {
 public:
  // Meets the other ranks; known to shutdown_all().
  static c10::intrusive_ptr<Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int size, std::chrono::milliseconds timeout,
                                          const CommunicatorOptions& options);
  // Of every backend of this process that is still there.
  static void shutdown_all();
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          std::chrono::milliseconds timeout, const CommunicatorOptions& options);
  ~Backend() override;

  const std::string getBackendName() const override { return "thalweg"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }

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

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  // Both end what is in flight, and every call after them fails.
  void abort() override { leave("the process group was aborted"); }
  // Communicator::has_switch().
  [[nodiscard]] bool has_switch() const { return living()->has_switch(); }
  void shutdown() override { leave("the process group was shut down"); }

  // An allreduce of gradients in place, of sums or means.
  WorkPtr reduce_gradient(at::Tensor tensor, bool mean, const GradientOptions& gradient);

 private:
  // What a call of the API is: its name for people and profilers, its timeout, and its results.
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
  // Of all parts: the work as the caller gets it, over if the call is not asynchronous.
  WorkPtr finish(const OwnWork& work, const Call& call);
  // Starts the part now or after those before it.
  void launch(const OwnWork& work, Part& part, const Call& call);
  // The same for messages, which wait for no collective.
  void launch_message(const OwnWork& work, Part& part, const Call& call);
  [[nodiscard]] CallOptions options_for(const Call& call) const;
  // Null once the group was left.
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const;
  // Throws instead.
  [[nodiscard]] std::shared_ptr<Communicator> living() const;
  void leave(const char* why);

  // Collectives, each a part or some of a work.
  void add_allreduce(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                     const c10d::ReduceOp& op);
  void add_allreduce_pieces(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                            const Reduction& reduction);
  void add_broadcast(const OwnWork& work, const Call& call, const at::Tensor& tensor, int root);
  // Into `into` at the root; in place if it is `tensor`.
  void add_reduce(const OwnWork& work, const Call& call, const at::Tensor& tensor, int root,
                  const c10d::ReduceOp& op, const at::Tensor& into);
  void add_allgather(const OwnWork& work, const Call& call, const at::Tensor& output,
                     const at::Tensor& input);
  void add_allgather_list(const OwnWork& work, const Call& call, const Tensors& outputs,
                          const at::Tensor& input);
  // Of one input that holds all parts, or of a list of them.
  void add_reduce_scatter(const OwnWork& work, const Call& call, const at::Tensor& output,
                          const Tensors& inputs, const c10d::ReduceOp& op);
  // Tensors of any sizes to and from every rank, by messages.
  using Exchange = std::pair<Tensors, Tensors>;  // what comes from each rank, what goes to it
  WorkPtr exchange(const Call& call, const std::function<Exchange(Stage&)>& lay_out);
  WorkPtr message(Tensors& tensors, bool sends, int peer, int tag);
  // Over when they return; in the order of collectives, as all that is launched.
  void run(const Call& call, const std::function<void(const OwnWork&)>& lay_out);
  void reduce_sparse(const at::Tensor& tensor, const Call& call, const c10d::ReduceOp& op);
  // Of tensors with one first size, in which alone ranks differ: [tensor][rank].
  std::vector<Tensors> gather_uneven(const Tensors& tensors, const Call& call);
  void check_root(const char* name, std::int64_t root) const;

  c10::intrusive_ptr<BackendOptions> options_;
  CommunicatorOptions communicator_options_;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::shared_ptr<Worker> completer_ = std::make_shared<Worker>("thalweg-done");
  Worker launcher_{"thalweg-launch"};
  std::mutex launch_mutex_;   // the order of starts
  OwnWork coalesced_ = {};    // between startCoalescing() and endCoalescing()
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Communicator> communicator_;
  std::string left_;  // why there is none
};

}  // namespace thalweg::python
