// The inside of a Communicator: who the ranks are and where, its plans, its engine.
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

#include "net/collective/atp_engine.h"
#include "net/collective/blackboard.h"
#include "net/collective/channels.h"
#include "net/collective/dlcp_links.h"
#include "net/collective/engine.h"
#include "net/collective/job.h"
#include "net/collective/known_call.h"
#include "net/collective/mailbox.h"
#include "net/collective/plans.h"
#include "net/metrics.h"

namespace thalweg {

class Communicator::Core {
 public:
  static Result<std::unique_ptr<Core>> make(const CommunicatorOptions& options);
  ~Core() { leave(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool has_switch() const { return atp_ != nullptr && atp_->has_switch(); }

  // One call, in the words of the plan layer.
  struct Call {
    Collective collective = Collective::kAllreduce;
    std::string_view name;      // must stay
    std::int64_t elements = 0;  // of the whole tensor of the plan
    DType type = DType::kFloat32;
    int root = 0;
    bool reduces = false;
  };
  // Makes the operation's plan and its description; its memory is yet to be named. `awaited`: by a
  // caller who gives it to end() as soon as it has started.
  Result<std::shared_ptr<Operation::State>> prepare(const Call& call, const CallOptions& options,
                                                    std::shared_ptr<const PreparedPlan>& plan,
                                                    bool awaited = false);
  void start(const std::shared_ptr<Operation::State>& op) {
    if (channels_ && channels_->may_divide(*op)) {
      channels_->start(op);
    } else {
      engine_->start(op);
    }
  }
  // Waits for one that is awaited. It is not the caller's any more.
  Status end(std::shared_ptr<Operation::State> op);

  // Whether an allreduce goes over ATP; the error says why it cannot though it must.
  [[nodiscard]] Result<bool> goes_by_atp(TensorSpan tensor, const CallOptions& options) const;
  // Requires that it does.
  Result<std::shared_ptr<Operation::State>> start_atp(TensorSpan tensor,
                                                      const CallOptions& options);

  struct Message {
    bool sends = false;
    std::byte* data = nullptr;  // not written if it sends
    std::int64_t elements = 0;
    DType type = DType::kFloat32;
    int peer = kAnyPeer;
    int tag = 0;
  };
  Result<std::shared_ptr<Operation::State>> message(const Message& message,
                                                    const CallOptions& options);

  Result<std::unique_ptr<Core>> shrink(std::chrono::nanoseconds window);
  // How many newcomers wait; for the first rank.
  Result<std::int64_t> newcomers(Time until);
  // With so many newcomers, whom the first rank lets in.
  Result<std::unique_ptr<Core>> grow(std::int64_t newcomers, Time until);
  // Of the ranks with our colour; null if it is kNoColor. `colors_and_keys`: [rank], two each.
  Result<std::unique_ptr<Core>> part(std::span<const std::int64_t> colors_and_keys, Time until);

 private:
  // The mailbox, made when it is first needed, here or by a message from another rank.
  struct Messages {
    MailboxOptions options;
    std::mutex mutex;
    std::shared_ptr<Mailbox> box;  // with mutex
    Result<std::shared_ptr<Mailbox>> get();
  };
  struct Members {
    std::string group;
    std::vector<int> ranks;  // in the job: of each rank of the communicator
    int rank = 0;            // ours in the communicator
  };
  // As a newcomer, once we are let in.
  static Result<Members> join(Job& job, const std::string& group, Time until);
  void leave();
  // Of these ranks of ours, in this order.
  [[nodiscard]] Members members_of(const std::vector<int>& ranks, std::string group) const;
  static Result<std::unique_ptr<Core>> make(const CommunicatorOptions& options,
                                            std::shared_ptr<Job> job, Members members, Time until);
  Core(CommunicatorOptions options, std::shared_ptr<Job> job, Members members)
      : options_(std::move(options)),
        job_(std::move(job)),
        members_(std::move(members)),
        rank_(members_.rank),
        size_(static_cast<int>(members_.ranks.size())) {}

  CommunicatorOptions options_;
  std::shared_ptr<Job> job_;
  Members members_;
  int rank_;
  int size_;
  // Parts of make().
  struct Listening {
    std::vector<SocketAddress> addresses;  // of this rank's interfaces, port 0
    std::vector<Fd> sockets = {};          // one an address
    std::string own = {};                  // as it is made known
  };
  Result<Listening> prepare_streams(EngineOptions& engine, const std::string& prefix, Time until);
  Status prepare_channels(EngineOptions& engine, const std::string& prefix, Time until);
  Status prepare_dlcp(const std::vector<SocketAddress>& addresses, const std::string& prefix);
  Status prepare_atp(const SocketAddress& address, const std::string& prefix, Time until);
  // `own`: the address at which this rank listens, as it is made known.
  void prepare_messages(EngineOptions& engine, const std::string& own);

  [[nodiscard]] Status check_bound(const Call& call, const CallOptions& options) const;
  // Of what the call and its options hold.
  [[nodiscard]] CallKey key_of(const Call& call, const CallOptions& options) const;
  Result<std::shared_ptr<const KnownCall>> know(const Call& call, const CallOptions& options);
  Result<std::shared_ptr<Operation::State>> make_operation(const Call& call,
                                                           const CallOptions& options);
  // Of a call in words: what ranks compare.
  static std::uint64_t signature_of(const std::string& text);
  // The call's bounds and peers, if it goes over DLCP.
  Status use_dlcp(const Call& call, const CallOptions& options, Operation::State& op);

  std::unique_ptr<Plans> plans_;
  static constexpr std::size_t kMostKnown = 1024;  // more: it starts afresh
  std::mutex known_mutex_;
  std::map<CallKey, std::shared_ptr<const KnownCall>> known_;  // with known_mutex_; [its key]
  SpareOperations spare_;
  std::unique_ptr<DlcpLinks> dlcp_;
  std::shared_ptr<Blackboard> board_;  // none: the process is alone
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Channels> channels_;  // with that engine as the first; null: we are alone
  std::shared_ptr<AtpEngine> atp_;      // null: none
  std::mutex atp_order_;                // held while an operation is given to both engines
  std::shared_ptr<Messages> messages_;
  std::atomic<int> parts_ = 0;  // split off so far
  Status prepare_metrics();
  std::shared_ptr<Metrics> metrics_;    // null: none are wanted
  std::shared_ptr<void> dlcp_metrics_;  // as long as dlcp_ may be asked: it goes first
};

}  // namespace thalweg
