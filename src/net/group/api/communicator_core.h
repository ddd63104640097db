// The implementation of a Communicator: its ranks and their addresses, its plans, its engines.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/communicator.h>

#include "net/group/api/auto_calls.h"
#include "net/group/api/group_notices.h"
#include "net/group/api/known_call.h"
#include "net/group/api/plans.h"
#include "net/group/atp/atp_engine.h"
#include "net/group/channels/channels.h"
#include "net/group/dlcp/dlcp_peers.h"
#include "net/group/drive/engine.h"
#include "net/group/p2p/mailbox.h"
#include "net/io/home_process.h"
#include "net/job/job.h"
#include "net/job/metrics.h"
#include "net/job/timeline.h"

namespace thalweg {

class Communicator::Core {
 public:
  static Result<std::unique_ptr<Core>> make(const CommunicatorOptions& options);
  ~Core() { leave(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const net::HomeProcess& home() const { return home_; }
  // An error in a child of the process that made the communicator. Every call asks it first.
  [[nodiscard]] Status at_home() const { return home_.check("the communicator"); }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::optional<Error> broken() const { return engine_->broken(); }
  // Any thread may call it, also while others use the communicator.
  void say_goodbye();
  [[nodiscard]] bool has_switch() const { return atp_ != nullptr && atp_->has_switch(); }

  // One call, in terms of the plan layer.
  struct Call {
    plan::Collective collective = plan::Collective::kAllreduce;
    std::string_view name;      // must outlive the communicator
    std::int64_t elements = 0;  // of the plan's whole tensor
    DType type = DType::kFloat32;
    int root = 0;
    bool reduces = false;
  };
  // Makes an operation with its plan and its description, and returns the plan in `plan`; null:
  // nothing has to be sent. The caller must then set the operation's memory. `awaited`: the caller
  // passes the operation to end() as soon as it has started.
  Result<std::shared_ptr<net::PlannedOperation>> prepare(
      const Call& call, const CallOptions& options, std::shared_ptr<const net::PreparedPlan>& plan,
      bool awaited = false);
  void start(const std::shared_ptr<net::PlannedOperation>& op) {
    if (channels_ && channels_->may_divide(*op)) {
      channels_->start(op);
    } else {
      engine_->start(op);
    }
  }
  // Waits for an awaited operation. The caller must not use it afterwards.
  Status end(std::shared_ptr<Operation::State> op);

  // Whether an allreduce goes over ATP. Error: the call names ATP, and cannot go over it.
  [[nodiscard]] Result<bool> goes_by_atp(TensorSpan tensor, const CallOptions& options) const;
  // Requires that goes_by_atp() is true.
  Result<std::shared_ptr<Operation::State>> start_atp(TensorSpan tensor,
                                                      const CallOptions& options);

  // Whether Transport::kAuto decides how the allreduce goes (communicator_auto.cc).
  [[nodiscard]] bool chooses(TensorSpan tensor, const CallOptions& options) const;
  // The caller takes this lock before choose(), and holds it until the call has started.
  [[nodiscard]] std::unique_lock<std::mutex> auto_order() { return std::unique_lock(auto_->order); }
  // Deals a candidate to the call. Requires that chooses() is true.
  Result<net::AutoTurn> choose(TensorSpan tensor, const CallOptions& options);
  [[nodiscard]] std::vector<AutoDecision> auto_choices() const;

  struct Message {
    bool sends = false;
    std::byte* data = nullptr;  // only read if the message is sent
    std::int64_t elements = 0;
    DType type = DType::kFloat32;
    int peer = kAnyPeer;
    int tag = 0;
  };
  Result<std::shared_ptr<net::MessageOperation>> message(const Message& message,
                                                         const CallOptions& options);

  Result<std::unique_ptr<Core>> shrink(std::chrono::nanoseconds window);
  // The number of newcomers that wait. The first rank calls it.
  Result<std::int64_t> newcomers(Time until);
  // Makes a communicator with `newcomers` more ranks, which the first rank admits.
  Result<std::unique_ptr<Core>> grow(std::int64_t newcomers, Time until);
  // Makes a communicator of the ranks with this rank's color; null if that is kNoColor.
  // `colors_and_keys` holds two numbers for each rank.
  Result<std::unique_ptr<Core>> part(std::span<const std::int64_t> colors_and_keys, Time until);

 private:
  // Holds the mailbox, which is made when this rank, or a message from another rank, first needs
  // it.
  struct Messages {
    net::MailboxOptions options;
    std::mutex mutex;
    std::shared_ptr<net::Mailbox> box;  // guarded by mutex
    Result<std::shared_ptr<net::Mailbox>> get();
  };
  struct Members {
    std::string group;
    std::vector<int> ranks;  // [rank of the communicator]: its rank in the job
    int rank = 0;            // this rank in the communicator
  };
  // Waits, as a newcomer, until this process is admitted.
  static Result<Members> join(net::Job& job, const std::string& group, Time until);
  void leave();
  // The members of a communicator of these ranks of this one, in this order.
  [[nodiscard]] Members members_of(const std::vector<int>& ranks, std::string group) const;
  static Result<std::unique_ptr<Core>> make(const CommunicatorOptions& options,
                                            std::shared_ptr<net::Job> job, Members members,
                                            Time until);
  Core(CommunicatorOptions options, std::shared_ptr<net::Job> job, Members members)
      : options_(std::move(options)),
        job_(std::move(job)),
        members_(std::move(members)),
        rank_(members_.rank),
        size_(static_cast<int>(members_.ranks.size())) {}

  net::HomeProcess home_;
  CommunicatorOptions options_;
  std::shared_ptr<net::Job> job_;
  Members members_;
  int rank_;
  int size_;
  // Parts of make().
  struct Listening {
    std::vector<net::SocketAddress> addresses;  // of this rank's interfaces, with port 0
    std::vector<net::Fd> sockets = {};          // one per address
    std::string own = {};                       // the addresses as they are published
  };
  Result<Listening> prepare_streams(net::EngineOptions& engine, const std::string& prefix,
                                    Time until);
  Result<Listening> use_places(net::EngineOptions& engine);
  Status prepare_channels(net::EngineOptions& engine, const Listening& listening,
                          const std::string& prefix, Time until);
  [[nodiscard]] std::optional<bool> is_fast(const Listening& listening, int local) const;
  Status prepare_dlcp(const std::vector<net::SocketAddress>& addresses, const std::string& prefix);
  Status prepare_atp(const net::SocketAddress& address, const std::string& prefix, Time until);
  // `own`: the addresses at which this rank listens, as they are published.
  void prepare_messages(net::EngineOptions& engine, const std::string& own);

  // Parts of choose(). The caller holds auto_order().
  void prepare_trials(const CallOptions& options);
  Result<net::AutoCalls*> calls_of(const net::AutoKind& kind, TensorSpan tensor,
                                   const CallOptions& options);
  Result<std::vector<net::AutoCandidate>> candidates_of(TensorSpan tensor,
                                                        const CallOptions& options);
  std::optional<std::size_t> deal(net::AutoCalls& calls, const CallOptions& options);
  void exchange_times(net::AutoCalls& calls, const CallOptions& options);
  void announce(const net::AutoCalls& calls);
  // Starts an allreduce over TCP that goes before all other data.
  Result<std::shared_ptr<net::PlannedOperation>> start_combining(const double* values,
                                                                 std::size_t count, ReduceOp op,
                                                                 const CallOptions& options);
  // Returns whether `wants` is true on all ranks. Blocks until all have called it.
  bool agree(bool wants, const CallOptions& options);
  // Sends something over DLCP to the next rank, and receives as much from the one before.
  Status reach_neighbours();

  [[nodiscard]] Status check_bound(const Call& call, const CallOptions& options) const;
  // The key views strings of the call and of its options.
  [[nodiscard]] net::CallKey key_of(const Call& call, const CallOptions& options) const;
  Result<std::shared_ptr<const net::KnownCall>> know(const Call& call, const CallOptions& options);
  Result<std::shared_ptr<net::PlannedOperation>> make_operation(const Call& call,
                                                                const CallOptions& options);
  // A week at most, which is as good as forever.
  static Duration to_duration(std::chrono::nanoseconds ns);
  static Status check_times(const CallOptions& options);
  // The number by which ranks compare calls, from a call in words.
  static std::uint64_t signature_of(const std::string& text);
  [[nodiscard]] std::uint32_t dlcp_payload() const;
  Result<std::shared_ptr<net::PlannedOperation>> make_dlcp_operation(const Call& call,
                                                                     const CallOptions& options,
                                                                     const exec::RankPlan& plan);

  std::unique_ptr<net::Plans> plans_;
  static constexpr std::size_t kMostKnown = 1024;  // at this number known_ is cleared
  std::mutex known_mutex_;
  std::map<net::CallKey, std::shared_ptr<const net::KnownCall>>
      known_;  // with known_mutex_; [its key]
  net::SpareOperations spare_;
  std::unique_ptr<net::DlcpPeers> dlcp_;
  std::shared_ptr<net::GroupNotices> board_;  // null: the process is alone
  std::shared_ptr<net::Engine> engine_;
  // Its first engine is engine_. Null: the process is alone.
  std::shared_ptr<net::Channels> channels_;
  std::shared_ptr<net::AtpEngine> atp_;   // null: no ATP
  std::mutex atp_order_;                  // held while an operation is passed to both engines
  std::unique_ptr<net::AutoTable> auto_;  // null: no trials
  bool uses_network_ = false;             // this rank does not share memory with all others
  std::shared_ptr<Messages> messages_;
  std::atomic<int> parts_ = 0;  // communicators made by split() and grow() so far
  Status prepare_metrics(net::EngineOptions& engine);
  // Metrics, the timeline and the debug log watch the calls.
  Status prepare_watchers();
  void say_how(const Listening& listening) const;
  void say_call(const net::KnownCall& known);
  // Lets them watch an operation that has not started. `number`: as in net::Timeline::Call.
  struct Watched {
    std::string_view name;
    std::int64_t bytes = 0;
    std::string_view scheme = {};
    std::string_view transport;
    int number = -1;
  };
  void watch(Operation::State& op, const Watched& call);
  std::atomic<int> calls_ = 0;               // collectives so far, if there is a timeline
  std::atomic<int> calls_said_ = 0;          // kinds of calls in the debug log
  std::shared_ptr<net::Timeline> timeline_;  // null: none is wanted
  std::shared_ptr<net::Metrics> metrics_;    // null: none are wanted
  std::shared_ptr<void> packet_metrics_;     // reads dlcp_ and atp_: destroyed before them
};

}  // namespace thalweg
