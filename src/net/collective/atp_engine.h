// Allreduces of a communicator over ATP (docs/switch.md): summed in a switch as far as it has
// memory, by the first ranks otherwise. One node (net/atp/node.h) and one thread, which waits for
// what the ranks agree on before an operation and does what is left after it.
//
// An operation comes with its agreement: an allreduce by maximum over the streams of the engine, of
// the exponents of its blocks. It also finds out when ranks do not call the same.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "net/collective/operation.h"

namespace thalweg {

struct AtpEngineOptions {
  int rank = 0;
  int size = 1;
  std::string name;            // of the job, at the switch
  SocketAddress local;         // the port is any
  std::string switch_address;  // of its control socket; empty: none
  std::string switch_token;
  bool only_with_switch = false;  // without one there is to be no engine
  int servers = 0;                // 0: all ranks
  std::uint32_t elements = 256;   // of a packet, at most
  // Makes a value known to all ranks, and waits for one of theirs.
  std::function<Status(const std::string& key, const std::string& value, Time until)> publish;
  std::function<Result<std::string>(const std::string& key, Time until)> find;
  // Why the communicator is broken; empty: it is not.
  std::function<std::string()> broken;
};

class AtpEngine final : public OperationHost {
 public:
  // Every rank calls it. Rank 0 has the job admitted by the switch, and its counts of servers and
  // elements hold for all. A switch that cannot be reached, or does not answer, is done without;
  // one that refuses is an error on every rank. With only_with_switch both give null, on all.
  [[nodiscard]] static Result<std::shared_ptr<AtpEngine>> make(AtpEngineOptions options,
                                                               Time until);
  ~AtpEngine() override { leave(); }
  AtpEngine(const AtpEngine&) = delete;
  AtpEngine& operator=(const AtpEngine&) = delete;

  [[nodiscard]] int servers() const { return options_.servers; }
  [[nodiscard]] bool has_switch() const { return has_switch_; }
  // Elements of a block, each with an exponent of its own.
  [[nodiscard]] std::uint32_t elements() const { return elements_; }

  // Requires tensor, elements and type of `op`. Both must have been given their memory, and the
  // agreement been started; its result is in op->scratch.
  void start(const std::shared_ptr<Operation::State>& op,
             const std::shared_ptr<Operation::State>& agreement);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // Nothing more can be started. If all operations are over, a server stays a moment for ranks that
  // still ask it.
  void settle();
  // What is in flight fails. Requires that the agreements have ended or will.
  void leave();

 private:
  struct Entry {
    std::shared_ptr<Operation::State> op;
    std::shared_ptr<Operation::State> agreement;
    Time deadline;
  };
  struct Ended {
    std::shared_ptr<Operation::State> op;
    Status status;
  };

  explicit AtpEngine(AtpEngineOptions options) : options_(std::move(options)) {}
  // False: there is to be none.
  Result<bool> set_up(Time until);
  // Of rank 0: the job as the switch admits it, or as it is without one.
  [[nodiscard]] Result<AtpJob> admit(const std::vector<std::string>& members, Time until);
  // Rank 0 goes on when all have come to `where`, or at that time.
  void meet(const std::string& where, Time until) const;
  void run();
  void hand_over(const Entry& entry);
  void finish(const std::shared_ptr<Operation::State>& op, Status status);
  void wait_for_others();

  AtpEngineOptions options_;
  std::uint32_t elements_ = 0;
  bool has_switch_ = false;
  std::unique_ptr<SwitchClient> lease_;  // the job lasts as long as this connection
  std::unique_ptr<AtpNode> node_;

  std::mutex mutex_;  // guards what follows, and the operations' results
  std::condition_variable changed_;
  std::deque<Entry> waiting_;
  std::deque<Ended> ended_;
  bool handing_over_ = false;
  int in_flight_ = 0;  // handed over to the node
  bool leaving_ = false;
  bool left_ = false;
  bool failed_ = false;  // the node was told
  std::thread thread_;
};

}  // namespace thalweg
