// Collective operations among the processes of a job, and messages between two of them, over TCP.
//
//   auto all = Communicator::create({});  // who we are: from the launcher's environment
//   auto sum = all->allreduce(TensorSpan::of(gradient), {});  // in place; blocks
//   auto later = all->allreduce_async(TensorSpan::of(other), {.op = ReduceOp::kMean});
//   auto status = later->wait();
//
// Every rank calls the same operations in the same order, with the same sizes and types; where they
// do not, every rank gets an error that says who called what. Results are exact, and the same on
// all ranks bit for bit: floats are summed in the order of the plan (docs/collectives.md).
//
// Nothing waits longer than the deadline of its call. When a rank dies, hangs or leaves, the
// operations in flight fail on every other rank with an error that names it, and so do all later
// ones: the communicator is broken, and shrink() makes one of the survivors.
//
// Every object here may be used from any thread; calls from several threads count in the order in
// which they are made, which must be the same on all ranks. A blocking call does the work in the
// caller's thread; a thread of the communicator's own does that of asynchronous ones. Nothing
// throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/rendezvous.h>
#include <thalweg/result.h>
#include <thalweg/tensor.h>
#include <thalweg/types.h>

namespace thalweg {

enum class Transport : std::uint8_t {
  kTcp,   // exact
  kDlcp,  // exact, or with a bounded loss if the call has a loss bound
  // Allreduces by sum or mean are summed in a switch (docs/switch.md), or by the ranks themselves
  // where it has no memory free or is gone: of int32 exactly; of float32, float16 and bfloat16 in
  // fixed point, the same on all ranks (tensor/fixed_point.h bounds the error). A communicator's
  // other calls go over TCP.
  kAtp,
  // kAtp for the allreduces that the planner expects to be faster that way, if a switch is there
  // (CommunicatorOptions::atp_switch, THALWEG_SWITCH) and lets the job in; kTcp for everything
  // else, and for all if none is. A call that names a scheme goes by that, over TCP.
  kAuto,
};

struct CommunicatorOptions {
  // Who we are. None: from the environment of thalweg run, torchrun, mpirun or srun
  // (docs/launching.md).
  std::optional<int> rank = {};
  std::optional<int> size = {};
  // "host:port" of the rendezvous store. Empty: from the environment.
  std::string store = {};
  // A store of the caller's, in place of that one; `rank` and `size` must then be given, and
  // `store` is only an address towards which the other ranks are: it says by which of this host's
  // addresses they find this rank, unless THALWEG_INTERFACE does.
  std::shared_ptr<Rendezvous> rendezvous = {};
  // The name of the group of ranks: communicators of one job need different ones.
  std::string group = "world";
  // A newcomer to a job that runs: it is let in by the others' grow(), which create() waits for. It
  // needs the address of the store (and the job's THALWEG_TOKEN, if there is one), and no rank.
  bool join = false;
  // How long create() may take.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // Which plan runs: a scheme as `thalweg plan` takes it ("ring", "rat:trees=4"). Empty: chosen by
  // the size of the tensor, or by the planner if there is a topology.
  std::string scheme = {};
  // The network as `--topology` takes it (a shorthand, or the text of a YAML file). Rank i is host
  // i. Empty: all hosts on one switch.
  std::string topology = {};
  // How calls go that do not say.
  Transport transport = Transport::kTcp;
  // Of what goes over TCP: ranks of one host exchange it through memory that they share, where the
  // system lets them (docs/collectives.md). False, or THALWEG_SHARED_MEMORY=0 in the environment of
  // either rank: over the network also within a host.
  bool shared_memory = true;
  // Network interfaces that are used at once, by name or by an address of this host, the first for
  // what is small; up to 16. Empty: THALWEG_INTERFACE, and without that the one that reaches the
  // store. Ranks may have different numbers of them: the i-th of the rank with more goes with the
  // i-th, counted round, of the other, and must reach it.
  std::vector<std::string> interfaces = {};
  // TCP streams for each such pair, 1 to 16, so that networks that choose a path by the ports of a
  // stream use several. Of two ranks the higher one's number holds. None: THALWEG_STREAMS, or 1.
  std::optional<int> streams = {};
  // Over TCP and shared memory, large tensors are divided among so many threads, 1 to 8, each with
  // streams of its own. What rank 0 says holds. None: THALWEG_CHANNELS, and without that one at
  // first, and as many as a rank has cores, at most 4, if the network is fast
  // (docs/collectives.md). Results do not depend on it.
  std::optional<int> channels = {};
  // The least bytes of such a part; the same on all ranks.
  std::size_t channel_bytes = std::size_t{512} << 10;
  // Of DLCP, as EndpointOptions has them. The payload must fit the MTU of every path.
  std::uint32_t dlcp_payload = 1400;
  double dlcp_line_rate_gbps = 0;
  // Of ATP. "host:port" of the switch's control socket; empty: THALWEG_SWITCH, and without that no
  // switch. At most 32 ranks.
  std::string atp_switch = {};
  // Ranks that add up what the switch did not: the first so many. 0: all. Of this and the next,
  // what rank 0 says holds.
  int atp_servers = 0;
  // Of a packet, 4 bytes each; with a header of 32 it must fit the MTU. A switch may allow fewer.
  std::uint32_t atp_elements = 256;
  // For tests: true loses the DLCP packet with this sequence number instead of sending it.
  std::function<bool(std::uint64_t sequence)> dlcp_lose = {};
};

// What all calls have in common.
struct CallOptions {
  ReduceOp op = ReduceOp::kSum;  // of allreduce, reduce and reduce_scatter
  // The communicator's scheme, for this call.
  std::string scheme = {};
  // Operations in flight with a lower number send first.
  int priority = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::optional<Transport> transport = {};
  // Over DLCP, of allreduces of floats by sum or mean: the part of the packets of each transfer
  // that may be lost, in [0, 1). A lost part of a contribution is left out of the average; a lost
  // part of the result leaves the rank with the average of the contributions it knows. Replicas may
  // then differ. 0: exact.
  double loss_bound = 0;
  // Of results; at most loss_bound. None: half of it.
  std::optional<double> result_loss_bound = {};
  // Over DLCP: in which of the switches' queues its packets wait, from 1, the most urgent, to 7.
  // For gradients: of the front layers first, which the next forward pass needs first. With a loss
  // bound, packets of larger elements are tagged as more important (DLCP, section 3.2.2).
  std::uint8_t dlcp_queue = 1;
  // Error feedback, of an allreduce by mean in place: memory of the caller's with as many elements,
  // zeros at first, which goes from call to call. It is added to the contribution; afterwards it is
  // the contribution less the average where the average that all get lacks contributions, and 0
  // elsewhere, also where this rank got no average (docs/collectives.md).
  void* residual = nullptr;
  // Called once, when the operation is over: from any thread, maybe before the call that starts it
  // returns, and with locks held. So it must return at once, and may call nothing of the
  // communicator's.
  std::function<void()> on_over = {};
};

// An operation in flight. Copies speak of the same one. Its tensors must stay until it is over.
class Operation {
 public:
  // Blocks until it is over: at its deadline at the latest.
  [[nodiscard]] Status wait() const;
  [[nodiscard]] bool done() const;
  // Of a receive that is over: whose message it was.
  [[nodiscard]] int source() const;

  struct State;
  explicit Operation(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  // Every rank of the group calls it. Connections are made when they are first needed.
  [[nodiscard]] static Result<Communicator> create(const CommunicatorOptions& options);
  // Tells the others that this rank leaves. Operations in flight fail.
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  // A switch has let it in: what goes over ATP may be summed there. Without one the ranks add up
  // all of it (kAtp), or it goes over TCP (kAuto).
  [[nodiscard]] bool has_switch() const;

  // Each of the following blocks, or, as ..._async, returns an operation in flight. Memory of which
  // nothing is said is that of the caller's until then; `in` and `out` may overlap only as it says.

  // In place: `tensor` is the rank's contribution, and afterwards the result.
  [[nodiscard]] Status allreduce(TensorSpan tensor, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> allreduce_async(TensorSpan tensor,
                                                  const CallOptions& options) const;
  // Into a tensor of the same size and type. `in` may be `out`.
  [[nodiscard]] Status allreduce(TensorView in, TensorSpan out, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> allreduce_async(TensorView in, TensorSpan out,
                                                  const CallOptions& options) const;
  // The result is at the root; elsewhere the tensor is left as it is.
  [[nodiscard]] Status reduce(TensorSpan tensor, int root, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> reduce_async(TensorSpan tensor, int root,
                                               const CallOptions& options) const;
  [[nodiscard]] Status broadcast(TensorSpan tensor, int root, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> broadcast_async(TensorSpan tensor, int root,
                                                  const CallOptions& options) const;
  // `out` holds size() times as many elements as `in`: those of rank 0 first. `in` may be the
  // rank's own part of `out`.
  [[nodiscard]] Status all_gather(TensorView in, TensorSpan out, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> all_gather_async(TensorView in, TensorSpan out,
                                                   const CallOptions& options) const;
  // `in` holds size() times as many elements as `out`, which gets the rank's part of the reduction.
  // They may overlap.
  [[nodiscard]] Status reduce_scatter(TensorView in, TensorSpan out,
                                      const CallOptions& options) const;
  [[nodiscard]] Result<Operation> reduce_scatter_async(TensorView in, TensorSpan out,
                                                       const CallOptions& options) const;
  // Both hold size() parts of the same number of elements: part r of `in` goes to rank r, whose
  // part of this rank's number it becomes. They may overlap.
  [[nodiscard]] Status all_to_all(TensorView in, TensorSpan out, const CallOptions& options) const;
  [[nodiscard]] Result<Operation> all_to_all_async(TensorView in, TensorSpan out,
                                                   const CallOptions& options) const;
  // `out` at the root holds size() times as many elements as `in`: those of rank 0 first; `in`
  // there may be the root's own part of it. Elsewhere it is not looked at.
  [[nodiscard]] Status gather(TensorView in, TensorSpan out, int root,
                              const CallOptions& options) const;
  [[nodiscard]] Result<Operation> gather_async(TensorView in, TensorSpan out, int root,
                                               const CallOptions& options) const;
  // `in` at the root holds size() times as many elements as `out`, which gets the rank's part;
  // `out` there may be the root's own part of it. Elsewhere it is not looked at.
  [[nodiscard]] Status scatter(TensorView in, TensorSpan out, int root,
                               const CallOptions& options) const;
  [[nodiscard]] Result<Operation> scatter_async(TensorView in, TensorSpan out, int root,
                                                const CallOptions& options) const;
  // Over when every rank has called it.
  [[nodiscard]] Status barrier(const CallOptions& options) const;
  [[nodiscard]] Result<Operation> barrier_async(const CallOptions& options) const;

  // Messages. A receive takes the first message with its tag (0 or more) from `source`, or from any
  // rank; its tensor must be of the type and size that were sent, or both ends get an error (the
  // sender of a small one has gone on). Messages are no part of the order of collectives, do not
  // wait for them, and use streams of their own. To send to oneself is allowed.
  //
  // A send of up to 4 KiB is over at once, as long as no more than 64 such messages wait at the
  // receiver; any other when the receiver has called for it and all bytes are on their way. At most
  // 4096 may wait for one receiver. So a program must not count on a send to end before its receive
  // is called. When a deadline passes that of a receive without a message does no harm; otherwise
  // the messages between the two ranks fail from then on.
  static constexpr int kAnySource = -1;
  [[nodiscard]] Status send(TensorView tensor, int target, int tag,
                            const CallOptions& options) const;
  [[nodiscard]] Result<Operation> send_async(TensorView tensor, int target, int tag,
                                             const CallOptions& options) const;
  // Whose message it was.
  [[nodiscard]] Result<int> recv(TensorSpan tensor, int source, int tag,
                                 const CallOptions& options) const;
  [[nodiscard]] Result<Operation> recv_async(TensorSpan tensor, int source, int tag,
                                             const CallOptions& options) const;

  // Communicators of parts of the ranks: all call it, and those of one colour (0 or more) get one
  // together, in the order of their keys, then ranks. None for kNoColor. It has a life of its own.
  static constexpr int kNoColor = -1;
  [[nodiscard]] Result<std::optional<Communicator>> split(int color, int key,
                                                          const CallOptions& options) const;

  // All call it: a communicator of these ranks and of the newcomers to their group (see `join`)
  // that wait now, who come last. None if nobody waits.
  [[nodiscard]] Result<std::optional<Communicator>> grow(const CallOptions& options) const;

  // After a failure: a communicator of the ranks that call it within `window`, in their order.
  // A rank that comes later gets an error. It needs the job's store: where that runs in rank 0's
  // process (torchrun, mpirun, srun), not after the death of rank 0.
  [[nodiscard]] Result<Communicator> shrink(std::chrono::nanoseconds window) const;

 private:
  class Core;
  explicit Communicator(std::unique_ptr<Core> core);
  using StartedOperation = Result<std::shared_ptr<Operation::State>>;
  [[nodiscard]] StartedOperation start_allreduce(TensorSpan tensor, const CallOptions& options,
                                                 bool awaited) const;
  [[nodiscard]] StartedOperation start_barrier(const CallOptions& options, bool awaited) const;
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
