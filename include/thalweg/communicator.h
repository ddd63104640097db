// Collective operations among the processes of a job, and messages between two of them. They go
// over TCP unless the options name another transport.
//
//   auto all = Communicator::create({});  // the launcher's environment says which rank this is
//   auto sum = all->allreduce(TensorSpan::of(gradient));  // in place; blocks until it is done
//   auto later = all->allreduce_async(TensorSpan::of(other), {.op = ReduceOp::kMean});
//   auto status = later->wait();
//
// Every rank calls the same operations in the same order, with the same sizes and types. If the
// calls differ, every rank gets an error that says which rank called what. Over TCP, and over DLCP
// without a loss bound, results are exact and the same on all ranks, bit for bit: floats are summed
// in the order of the plan (docs/collectives.md).
//
// No call waits longer than its deadline. When a rank dies, hangs or leaves, the operations in
// flight fail on every other rank with an error that names that rank. The communicator is then
// broken: all later operations fail too. shrink() makes a new communicator of the survivors.
//
// Any thread may use any object here. The order of operations is the order in which the threads
// make their calls, and it must be the same on all ranks. A blocking call does its work in the
// caller's thread; a thread of the communicator does the work of asynchronous calls. Nothing
// throws. In a child of fork(), every call on an object of the parent is an error, and the parent
// does not notice when the child destroys its copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/meeting_place.h>
#include <thalweg/rendezvous.h>
#include <thalweg/result.h>
#include <thalweg/tensor.h>
#include <thalweg/types.h>

namespace thalweg {
namespace net {
struct AutoTurn;
}  // namespace net

enum class Transport : std::uint8_t {
  kTcp,   // exact
  kDlcp,  // exact, or with a bounded loss if the call has a loss bound
  // A switch sums the allreduces by sum or mean (docs/switch.md). Where it has no memory free, or
  // is gone, the ranks sum them. Sums of int32 are exact. Sums of float32, float16 and bfloat16 are
  // made in fixed point and are the same on all ranks (tensor/fixed_point.h bounds the error). All
  // other calls go over TCP.
  kAtp,
  // The fastest of several ways, found by trials among the first allreduces by sum or mean of each
  // size (docs/collectives.md): the schemes over TCP, DLCP if ranks are on several hosts, ATP if
  // there is a switch (CommunicatorOptions::atp_switch, THALWEG_SWITCH) that admits the job. A call
  // with a loss bound may go over DLCP with that bound, all others are as exact as their way. Small
  // tensors, other calls, and calls that name a scheme go over TCP. auto_choices() says what was
  // chosen. THALWEG_AUTO=0, or CommunicatorOptions::scheme, switches the trials off: then the
  // planner's prediction decides between TCP and ATP.
  kAuto,
};

// In words: "tcp", "dlcp", "atp" or "auto".
constexpr const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::kTcp:
      return "tcp";
    case Transport::kDlcp:
      return "dlcp";
    case Transport::kAtp:
      return "atp";
    case Transport::kAuto:
      return "auto";
  }
  return "?";
}

struct CommunicatorOptions {
  // This process. None: read from the environment of thalweg run, torchrun, mpirun or srun
  // (docs/launching.md).
  std::optional<int> rank = {};
  std::optional<int> size = {};
  // "host:port" of the rendezvous store. Empty: from the environment.
  std::string store = {};
  // The caller's own store, used instead of the one at `store`. Requires `rank` and `size`. `store`
  // is then only an address in the direction of the other ranks: it decides which of this host's
  // addresses the other ranks connect to, unless THALWEG_INTERFACE does.
  std::shared_ptr<Rendezvous> rendezvous = {};
  // The meeting places of all ranks, by rank, instead of a store: create() then waits for no other
  // rank. `place` is this process's own, whose address is places[rank]. Requires `rank`.
  std::shared_ptr<MeetingPlace> place = {};
  std::vector<std::string> places = {};
  // Name of the group of ranks. Each communicator of a job needs a different one.
  std::string group = "world";
  // This process joins a job that already runs. create() waits until the other ranks call grow(). A
  // newcomer needs the address of the store, the job's THALWEG_TOKEN if there is one, and no rank.
  bool join = false;
  // The most time that create() may take.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // The scheme that makes the plans, as `thalweg plan` takes it ("ring", "rat:trees=4"). Empty:
  // chosen by the size of the tensor, or by the planner if there is a topology.
  std::string scheme = {};
  // The network as `--topology` takes it (a shorthand, or the text of a YAML file). Rank i is host
  // i. Empty: all hosts are on one switch.
  std::string topology = {};
  // The transport of calls that do not name one.
  Transport transport = Transport::kTcp;
  // Calls over TCP use shared memory between ranks of one host, where the system lets them
  // (docs/collectives.md). False, or THALWEG_SHARED_MEMORY=0 in the environment of either rank:
  // such ranks use the network too.
  bool shared_memory = true;
  // The network interfaces to use at the same time, by name or by an address of this host; up to
  // 16. Small tensors use the first. Empty: THALWEG_INTERFACE, and without that the interface that
  // reaches the store. Ranks may have different numbers of interfaces: with n of them on one rank
  // and m < n on the other, interface i of the first is paired with interface i mod m of the
  // second, and must reach it.
  std::vector<std::string> interfaces = {};
  // TCP streams for each such pair, 1 to 16. Several streams use several paths where the network
  // chooses a path by a stream's ports. Between two ranks the higher rank's number holds. None:
  // THALWEG_STREAMS, or 1.
  std::optional<int> streams = {};
  // The number of threads, 1 to 8, that a large tensor is divided among over TCP and shared memory.
  // Each has streams of its own. Rank 0's number holds. None: THALWEG_CHANNELS, and without that
  // one thread, or if the network is fast as many as the rank has cores, at most 4
  // (docs/collectives.md). Results do not depend on it.
  std::optional<int> channels = {};
  // The least bytes that such a thread gets of a tensor. Must be the same on all ranks.
  std::size_t channel_bytes = std::size_t{512} << 10;
  // DLCP: EndpointOptions::packet_payload, EndpointOptions::paths and
  // EndpointOptions::line_rate_gbps. The payload, a multiple of 8, must be the same on all ranks
  // and fit the MTU of every path. None: THALWEG_DLCP_PAYLOAD, and without that kUsualDlcpPayload;
  // THALWEG_DLCP_PATHS, and without that 0. THALWEG_CHECKSUM=0 switches EndpointOptions::checksum
  // off.
  static constexpr std::uint32_t kUsualDlcpPayload = 1400;
  std::optional<std::uint32_t> dlcp_payload = {};
  std::optional<std::uint32_t> dlcp_paths = {};
  // TCP streams to other hosts keep to the same rate, up to 2 Gb/s.
  double dlcp_line_rate_gbps = 0;
  // ATP: "host:port" of the switch's control socket; or a list of switches, as in
  // "leaf0=10.0.0.1:7700,leaf1=10.0.1.1:7700", or the path of a file with such lines. The names of
  // a list are those of switches in `topology` or, if that is empty, in THALWEG_TOPOLOGY; the
  // switches of several racks then sum in two levels (docs/switch.md). Rank 0's value holds. Empty:
  // THALWEG_SWITCH, and without that there is no switch. A job over ATP has at most 1024 ranks.
  std::string atp_switch = {};
  // ATP: the first `atp_servers` ranks, at most 32, add up what the switch did not. 0: all, up to
  // 32. With a list of switches they are ranks of one rack, and at most as many as it has. Rank 0's
  // values of this option and of the next one hold.
  int atp_servers = 0;
  // ATP: elements in a packet, 4 bytes each. With a header of 44 bytes they must fit the MTU. A
  // switch may allow fewer.
  std::uint32_t atp_elements = 256;
};

// Options of one call.
struct CallOptions {
  ReduceOp op = ReduceOp::kSum;  // for allreduce, reduce and reduce_scatter
  // Replaces CommunicatorOptions::scheme for this call. Empty: it does not.
  std::string scheme = {};
  // Among the operations in flight, those with a lower number send first.
  int priority = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::optional<Transport> transport = {};
  // For allreduces of floats by sum or mean over DLCP: the fraction of each transfer's packets that
  // may be lost, in [0, 1). Where part of a contribution is lost, the average is over the
  // contributions that arrived. Where part of the result is lost, the rank keeps the average of the
  // contributions it knows. Replicas may then differ. 0: exact.
  double loss_bound = 0;
  // The same for the transfers of results; at most loss_bound. None: half of loss_bound.
  std::optional<double> result_loss_bound = {};
  // Over DLCP: the queue in which the packets wait at switches, from 1, the most urgent, to 7.
  // Gradients of the front layers should be most urgent, because the next forward pass needs them
  // first. With a loss bound, packets with larger elements are tagged as more important (DLCP,
  // section 3.2.2).
  std::uint8_t dlcp_queue = 1;
  // Error feedback, for an allreduce by mean in place: memory of the caller with as many elements
  // as the tensor. It holds zeros before the first call and is passed unchanged from call to call.
  // The call adds it to the contribution. Afterwards it holds contribution − average for elements
  // whose average lacks contributions, and 0 for all others, including those for which this rank
  // received no average (docs/collectives.md).
  void* residual = nullptr;
  // Called once, when the operation is over: from any thread, perhaps before the call that starts
  // the operation returns, and with locks held. It must therefore return at once and must not call
  // the communicator.
  std::function<void()> on_over = {};
};

// What Transport::kAuto has chosen for one kind of calls.
struct AutoDecision {
  std::string kind = {};    // "allreduce of float32, mean, 1MiB to 2MiB"
  bool decided = false;     // false: trials go on
  std::string chosen = {};  // in use: "ring over tcp"
  std::string why = {};     // the times of all ways
  std::int64_t calls = 0;   // so far
  // The trials so far: their number, the time that they took on the slowest rank, and how much
  // longer that is than the fastest way would have taken.
  std::int64_t trials = 0;
  double trials_ms = 0;
  double extra_ms = 0;
};

// A handle of an operation in flight. Copies refer to the same operation. The caller must keep its
// tensors until it is over.
class Operation {
 public:
  // Blocks until the operation is over, which is at its deadline at the latest.
  [[nodiscard]] Status wait() const;
  [[nodiscard]] bool done() const;
  // For a receive that is over: the rank that sent the message.
  [[nodiscard]] int source() const;

  struct State;
  explicit Operation(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  // Every rank of the group calls it. Ranks connect to each other when they first need to.
  [[nodiscard]] static Result<Communicator> create(const CommunicatorOptions& options);
  // Tells the other ranks that this one leaves. Operations in flight fail.
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  // True: a switch has admitted this communicator, and may sum what goes over ATP. False: the ranks
  // sum it (kAtp), or it goes over TCP (kAuto).
  [[nodiscard]] bool has_switch() const;
  // What Transport::kAuto has chosen, for each kind of calls so far. The same on all ranks after
  // the same calls. Empty: nothing is chosen by trials.
  [[nodiscard]] std::vector<AutoDecision> auto_choices() const;

  // Why every further operation fails, once the communicator is broken; none before.
  [[nodiscard]] std::optional<Error> broken() const;
  // Tells the other ranks that this one leaves, and returns without waiting: the operations in
  // flight fail, and so does every further call. What goes over ATP fails when the destructor runs.
  void leave() const;

  // Each of the following calls blocks; its ..._async form returns the operation in flight instead.
  // Until the operation is over, the caller must neither change `in` nor use `out` or a tensor in
  // place. `in` and `out` may overlap only where the comment says so.

  // In place: `tensor` holds the rank's contribution, and the result afterwards.
  [[nodiscard]] Status allreduce(TensorSpan tensor, const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> allreduce_async(TensorSpan tensor,
                                                  const CallOptions& options = {}) const;
  // Writes the result to `out`, which has the size and type of `in` and may be the same memory.
  [[nodiscard]] Status allreduce(TensorView in, TensorSpan out,
                                 const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> allreduce_async(TensorView in, TensorSpan out,
                                                  const CallOptions& options = {}) const;
  // The root's tensor holds the result afterwards. The tensors of the other ranks are not changed.
  [[nodiscard]] Status reduce(TensorSpan tensor, int root, const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> reduce_async(TensorSpan tensor, int root,
                                               const CallOptions& options = {}) const;
  [[nodiscard]] Status broadcast(TensorSpan tensor, int root,
                                 const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> broadcast_async(TensorSpan tensor, int root,
                                                  const CallOptions& options = {}) const;
  // `out` holds size() times as many elements as `in`, ordered by rank. `in` may be the rank's own
  // part of `out`.
  [[nodiscard]] Status all_gather(TensorView in, TensorSpan out,
                                  const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> all_gather_async(TensorView in, TensorSpan out,
                                                   const CallOptions& options = {}) const;
  // `in` holds size() times as many elements as `out`, which gets the rank's part of the reduction.
  // `in` and `out` may overlap.
  [[nodiscard]] Status reduce_scatter(TensorView in, TensorSpan out,
                                      const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> reduce_scatter_async(TensorView in, TensorSpan out,
                                                       const CallOptions& options = {}) const;
  // Both hold size() parts of the same number of elements. Part r of `in` becomes, on rank r, the
  // part of `out` with this rank's number. `in` and `out` may overlap.
  [[nodiscard]] Status all_to_all(TensorView in, TensorSpan out,
                                  const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> all_to_all_async(TensorView in, TensorSpan out,
                                                   const CallOptions& options = {}) const;
  // The root's `out` holds size() times as many elements as `in`, ordered by rank; its `in` may be
  // its own part of `out`. The other ranks' `out` is ignored.
  [[nodiscard]] Status gather(TensorView in, TensorSpan out, int root,
                              const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> gather_async(TensorView in, TensorSpan out, int root,
                                               const CallOptions& options = {}) const;
  // The root's `in` holds size() times as many elements as `out`, which gets the rank's part; its
  // `out` may be its own part of `in`. The other ranks' `in` is ignored.
  [[nodiscard]] Status scatter(TensorView in, TensorSpan out, int root,
                               const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> scatter_async(TensorView in, TensorSpan out, int root,
                                                const CallOptions& options = {}) const;
  // A barrier is over when every rank has called it.
  [[nodiscard]] Status barrier(const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> barrier_async(const CallOptions& options = {}) const;

  // Messages. A receive takes the first message with its tag (0 or more) from `source`, or from any
  // rank. If its tensor differs in type or size from the one that was sent, both ends get an error,
  // unless the send was of up to 4 KiB and is already over. Messages are not part of the order of
  // collectives, do not wait for collectives, and use streams of their own. A rank may send to
  // itself.
  //
  // A send of up to 4 KiB is over at once, as long as no more than 64 such messages wait at the
  // receiver. Any other send is over when the receiver has called for it and the system has taken
  // all its bytes. At most 4096 sends may wait for one receiver. A program must therefore not rely
  // on a send being over before its receive is called. A receive whose deadline passes without a
  // message does no harm. After any other missed deadline the messages between the two ranks fail.
  static constexpr int kAnySource = -1;
  [[nodiscard]] Status send(TensorView tensor, int target, int tag,
                            const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> send_async(TensorView tensor, int target, int tag,
                                             const CallOptions& options = {}) const;
  // Returns the rank that sent the message.
  [[nodiscard]] Result<int> recv(TensorSpan tensor, int source, int tag,
                                 const CallOptions& options = {}) const;
  [[nodiscard]] Result<Operation> recv_async(TensorSpan tensor, int source, int tag,
                                             const CallOptions& options = {}) const;

  // Divides the ranks among new communicators. All ranks call it. Those with the same color (0 or
  // more) get a communicator together, in the order of their keys, then of their ranks. A rank with
  // kNoColor gets none. The new communicators do not depend on this one.
  static constexpr int kNoColor = -1;
  [[nodiscard]] Result<std::optional<Communicator>> split(int color, int key,
                                                          const CallOptions& options = {}) const;

  // Makes a communicator of these ranks and of the newcomers to their group that wait now
  // (CommunicatorOptions::join), which get the last ranks. All ranks call it. None: no newcomer
  // waits.
  [[nodiscard]] Result<std::optional<Communicator>> grow(const CallOptions& options = {}) const;

  // After a failure: makes a communicator of the ranks that call it within `window`, in their
  // order. A rank that calls it later gets an error. It needs the job's store. Where rank 0's
  // process runs the store (torchrun, mpirun, srun), shrink() fails once that process is dead.
  [[nodiscard]] Result<Communicator> shrink(std::chrono::nanoseconds window) const;

 private:
  class Core;
  explicit Communicator(std::unique_ptr<Core> core);
  using StartedOperation = Result<std::shared_ptr<Operation::State>>;
  [[nodiscard]] StartedOperation start_allreduce(TensorSpan tensor, const CallOptions& options,
                                                 bool awaited) const;
  // The same for a call whose way is known. `turn`: its turn by Transport::kAuto; null: none.
  [[nodiscard]] StartedOperation start_allreduce_by(TensorSpan tensor, const CallOptions& options,
                                                    bool awaited, const net::AutoTurn* turn) const;
  [[nodiscard]] StartedOperation start_barrier(const CallOptions& options, bool awaited) const;
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
