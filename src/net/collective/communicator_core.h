// The inside of a Communicator: who the ranks are and where, its plans, its engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "net/bootstrap/environment.h"
#include "net/bootstrap/store_client.h"
#include "net/bootstrap/store_server.h"
#include "net/collective/dlcp_links.h"
#include "net/collective/engine.h"
#include "net/collective/plans.h"

namespace thalweg {

// What the communicators of a process share: the store, and the one of rank 0 if it runs there.
struct Job {
  Environment environment;
  std::optional<StoreServer> server;
  std::mutex mutex;                   // guards what follows
  std::optional<StoreClient> client;  // none: the process is alone

  static Result<std::shared_ptr<Job>> join(const CommunicatorOptions& options, Time until);
};

class Communicator::Core {
 public:
  static Result<std::unique_ptr<Core>> make(const CommunicatorOptions& options);
  ~Core() {
    if (engine_) engine_->leave();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // One call, in the words of the plan layer.
  struct Call {
    Collective collective = Collective::kAllreduce;
    std::string_view name;
    std::int64_t elements = 0;  // of the whole tensor of the plan
    DType type = DType::kFloat32;
    int root = 0;
    bool reduces = false;
  };
  // Makes the operation's plan and its description; its memory is yet to be named.
  Result<std::shared_ptr<Operation::State>> prepare(const Call& call, const CallOptions& options,
                                                    std::shared_ptr<const PreparedPlan>& plan);
  void start(const std::shared_ptr<Operation::State>& op) { engine_->start(op); }
  Status wait(Operation::State& op) { return engine_->wait(op); }

  Result<std::unique_ptr<Core>> shrink(std::chrono::nanoseconds window);

 private:
  struct Members {
    std::string group;
    std::vector<int> ranks;  // in the job: of each rank of the communicator
    int rank = 0;            // ours in the communicator
  };
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
  [[nodiscard]] Status check_bound(const Call& call, const CallOptions& options) const;
  // The call's bounds and peers, if it goes over DLCP.
  Status use_dlcp(const Call& call, const CallOptions& options, Operation::State& op);

  std::unique_ptr<Plans> plans_;
  std::unique_ptr<DlcpLinks> dlcp_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace thalweg
