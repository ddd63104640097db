// Allreduces of a communicator over ATP (docs/switch.md): a switch sums them as far as it has
// memory, and the first ranks sum the rest. The engine has one node (net/atp/node.h), to which it
// gives operations at once, and one thread, which does what is left to do after them.
//
// Each operation comes with a comparison: a small allreduce over the streams of the TCP engine that
// finds out when the ranks' calls differ. It runs beside the operation. No data waits for it; only
// the operation's end does, so that nobody uses the sum of different calls.
//
// When more switches can take part than did when the job was made, rank 0 makes another job
// (net/atp/returns.h), and all ranks go over to it at the same operation (AtpSuccession).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/leases.h"
#include "net/atp/levels.h"
#include "net/atp/node.h"
#include "net/group/atp/atp_succession.h"
#include "net/group/operation/planned_operation.h"
#include "net/io/address.h"
#include "wire/authenticate.h"

namespace thalweg::net {

struct AtpEngineOptions {
  int rank = 0;
  int size = 1;
  std::string name;      // of the job at the switch
  SocketAddress local;   // with any port
  std::string switches;  // as parse_switch_list() takes them; empty: no switch
  SwitchSecrets switch_secrets;
  // With a job key, packets of the job carry tags by a key that is made from it.
  std::optional<wire::JobKey> job_key;
  // The network, as atp_network() takes it, and this rank's host there. Rank 0's network holds.
  // Empty: it is not known.
  std::string topology;
  std::string host;
  bool only_with_switch = false;  // without a switch make no engine
  int servers = 0;                // 0: all ranks
  std::uint32_t elements = 256;   // at most, in a packet
  bool checks = true;             // AtpNodeOptions::checks; rank 0's holds
  // publish() makes a value known to all ranks. find() waits for a value that a rank published.
  std::function<Status(const std::string& key, const std::string& value, Time until)> publish;
  std::function<Result<std::string>(const std::string& key, Time until)> find;
  // Returns why the communicator is broken; none: it is not.
  std::function<std::optional<Error>()> broken;
  // The engine that compares the calls asks all ranks where they are, and breaks the communicator
  // if one has not answered (Engine::call_roll()).
  std::function<void()> call_roll;
  std::function<void(Duration limit)> fail_missing;
};

// An allreduce over ATP.
struct AtpOperation final : Operation::State {
  // Set before the operation starts.
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::byte* tensor = nullptr;
  std::int64_t elements = 0;
  std::function<void()> last_step;  // what is to be done with the sum
};

class AtpEngine final : public OperationHost {
 public:
  // Every rank calls it. Rank 0 asks the switches to admit the job (net/atp/levels.h), and its
  // numbers of servers and elements hold for all ranks. The job runs without switches that cannot
  // be reached, do not answer or have no room; rank 0 warns of the last. If one refuses for another
  // reason, or the list is wrong, every rank gets an error.
  // With only_with_switch every rank gets null if a switch refuses or none answers.
  [[nodiscard]] static Result<std::shared_ptr<AtpEngine>> make(AtpEngineOptions options,
                                                               Time until);
  ~AtpEngine() override { leave(); }
  AtpEngine(const AtpEngine&) = delete;
  AtpEngine& operator=(const AtpEngine&) = delete;

  [[nodiscard]] int servers() const { return options_.servers; }
  // Whether the job is at a switch now.
  [[nodiscard]] bool has_switch() const { return has_switch_; }
  // The first job's, so that all ranks plan alike. Levels of switches that sum: 1 or 2.
  [[nodiscard]] int levels() const { return levels_; }
  // The first job's: elements in a block. Each block has its own exponent.
  [[nodiscard]] std::uint32_t elements() const { return elements_; }
  // Packets that arrived at this rank changed; any thread may ask.
  [[nodiscard]] std::uint64_t corrupt();

  // Starts an operation that has its tensor, elements, type and limit, and then calls compare(),
  // which starts its comparison. That is the maximum of one int32, in its scratch memory, which
  // this object writes and reads. All ranks start the same operations in the same order.
  void start(const std::shared_ptr<AtpOperation>& op,
             const std::shared_ptr<PlannedOperation>& comparison,
             const std::function<void()>& compare);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // No operation can be started afterwards. If all operations are over, a server stays for a
  // moment, for ranks that still ask it.
  void settle();
  // Fails the operations in flight. Requires that their comparisons have ended or will end.
  void leave();

 private:
  struct Entry {
    std::shared_ptr<AtpOperation> op;
    std::shared_ptr<PlannedOperation> comparison;
    Time limit = {};
    Time roll_at = {};
    std::uint64_t number = 0;        // AtpSuccession's
    bool compares = false;           // the comparison has started
    std::optional<Status> sum = {};  // how the node ended it
  };

  explicit AtpEngine(AtpEngineOptions options) : options_(std::move(options)) {}
  // False: there is to be no engine.
  Result<bool> set_up(Time until);
  // The methods of rank 0. admit(): returns the job as the switches admitted it, or the job without
  // a switch. `members`: what each rank published.
  [[nodiscard]] Result<AtpJob> admit(const std::vector<std::string>& members, Time until);
  // What a job is to be: levels_options_ with what is its own.
  [[nodiscard]] AtpLevelsOptions levels_of(std::uint32_t number, std::uint64_t salt) const;
  // What all ranks must know of a job that was admitted.
  [[nodiscard]] AtpJob job_of(const AtpJob& admitted, std::uint64_t salt) const;
  // Makes the next job, at more switches than this, and tells the ranks where they find it. Called
  // by the thread of leases_.
  [[nodiscard]] std::optional<AtpLevels> make_next(std::size_t held);

  // The node's options for this rank.
  [[nodiscard]] Result<AtpNodeOptions> node_options(const AtpJob& job) const;
  // Joins the job of this number, which rank 0 has told.
  [[nodiscard]] Status join_next(std::uint32_t number);
  // All ranks call it. For rank 0 it returns when all ranks have called it with the same `where`,
  // or at `until`; for the others at once.
  void meet(const std::string& where, Time until) const;
  void run();
  // Gives the node the operations whose job is known; when it is leaving, all. Requires the mutex.
  void give();
  void give(const std::shared_ptr<Entry>& entry);
  // Passes an entry to the thread if the node has ended it and its comparison has started. Requires
  // the mutex.
  void pass_on(const std::shared_ptr<Entry>& entry);
  void finish(const Entry& entry);
  // Calls the roll if the oldest operation is about to be late. Requires the mutex, and releases it
  // meanwhile.
  void call_roll(std::unique_lock<std::mutex>& lock);
  // A sum did not come in time, though all ranks made the call: the communicator breaks if a rank
  // does not answer here, or says so elsewhere by the operation's deadline.
  void find_culprit(const Entry& entry);
  void wait_for_others();

  AtpEngineOptions options_;
  std::uint32_t elements_ = 0;
  std::atomic<bool> has_switch_ = false;
  std::atomic<bool> is_server_ = false;  // of some job
  int levels_ = 1;
  std::vector<std::string> members_;  // the address of each rank
  std::uint32_t joined_ = 0;          // the last job that the node was to join
  // What rank 0 makes jobs of.
  AtpLevelsOptions levels_options_;
  std::atomic<std::uint32_t> told_ = 0;  // the last job that it has made
  std::vector<std::uint32_t> numbers_;   // of all jobs so far in packets
  // The job lasts as long as these.
  std::unique_ptr<AtpLeases> leases_;  // of rank 0
  std::unique_ptr<AtpNode> node_;
  std::mutex asking_;          // guards what follows, and the end of node_
  std::uint64_t corrupt_ = 0;  // when node_ ended

  std::mutex mutex_;  // guards what follows, and the operations' results
  std::condition_variable changed_;
  std::optional<AtpSuccession> succession_;
  std::uint32_t job_ = 0;                       // of the last operation that the node was given
  std::deque<std::shared_ptr<Entry>> waiting_;  // for the node to get them
  std::deque<std::shared_ptr<Entry>> ended_;
  int in_flight_ = 0;               // started and not ended
  std::multiset<Time> rolls_;       // when they are about to be late, unless they are over
  std::optional<Time> rolled_for_;  // the one of these for which the roll was called last
  bool leaving_ = false;
  bool left_ = false;
  bool failed_ = false;  // the node was told that the communicator is broken
  std::thread thread_;
  bool looked_for_culprit_ = false;  // of thread_ alone
};

}  // namespace thalweg::net
