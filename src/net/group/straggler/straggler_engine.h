// StragglerEngine: the allreduces of one communicator with a straggler bound, on one rank. It
// drives a proto::StragglerGroup: its thread moves contributions, sums and messages by the
// communicator's mailbox, under tags that no caller can name.
//
// The data of a call lies in memory of the engine, so that a call can be over while a late rank
// still takes what it missed. The caller's tensor and residual are touched only when the call
// starts and when it ends.
//
// Both ends of a message post it exactly once: who has nothing to send any more sends an empty one,
// and who wants nothing any more receives an empty one, which the mailbox refuses if it is not
// empty. So nothing waits for ever.
//
// Beside each call goes an allreduce of one byte over the collective engine, its comparison, which
// nobody waits for: it finds calls that differ and ranks that hang beyond the deadline, and says
// whom to blame. A call that fails breaks the communicator.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/group/drive/operation.h"
#include "net/group/p2p/mailbox.h"
#include "proto/straggler/group.h"

namespace thalweg::net {

// No caller has tags of 2^31 and above.
enum class StragglerTag : std::uint32_t { kContribution = 0, kResult = 1, kMessage = 2 };
constexpr std::uint32_t straggler_tag(StragglerTag kind, std::uint64_t call, int segment) {
  static_assert(proto::kStragglerMostSegments <= 16);
  return 0x8000'0000U | static_cast<std::uint32_t>(kind) << 29U |
         static_cast<std::uint32_t>(call & 0xff'ffffU) << 4U | static_cast<std::uint32_t>(segment);
}

struct StragglerEngineOptions {
  int rank = 0;
  int size = 3;
  std::function<Result<std::shared_ptr<Mailbox>>()> mailbox;
  // Returns why the communicator is broken; none: it is not.
  std::function<std::optional<Error>()> broken;
  // Breaks the communicator. Never blocks.
  std::function<void(const Error& why)> abandon;
};

struct StragglerStart {
  std::shared_ptr<Operation::State> op;          // with its tensor, elements, type, op and limit
  std::shared_ptr<Operation::State> comparison;  // not started
  std::byte* residual = nullptr;
  double bound = 0;
  int window = 100;
};

class StragglerEngine final : public OperationHost {
 public:
  explicit StragglerEngine(StragglerEngineOptions options);
  ~StragglerEngine() override { leave(); }
  StragglerEngine(const StragglerEngine&) = delete;
  StragglerEngine& operator=(const StragglerEngine&) = delete;

  // All ranks start the same calls in the same order. `compare` starts the comparison.
  void start(const StragglerStart& start, const std::function<void()>& compare);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  [[nodiscard]] proto::StragglerCounts counts();
  // Waits a while until late ranks have what they missed. Then fails the calls in flight, and ends the
  // thread.
  void leave();

 private:
  using Op = Operation::State;
  enum class What : std::uint8_t { kStart, kContribution, kResult, kMessage, kSent };
  struct Receive {
    std::shared_ptr<Op> op;
    std::uint32_t tag = 0;
  };
  // One call.
  struct Record {
    StragglerStart start;
    proto::StragglerLayout layout;
    std::uint64_t number = 0;
    Time deadline;
    std::unique_ptr<std::byte[]> contribution;
    std::unique_ptr<std::byte[]> result;
    std::unique_ptr<std::byte[]> arrived;  // [rank]: its contribution to the own shard
    std::map<std::pair<int, int>, Receive> contributions;  // [rank, segment]: receives
    std::map<std::pair<int, int>, Receive> results;        // [owner, segment]: receives
    int pending = 0;                                       // messages that are not over
    bool over = false;
  };
  struct Happening {
    What what = What::kSent;
    std::shared_ptr<Record> record;
    std::shared_ptr<Op> op;
    int peer = 0;
    int segment = 0;
  };
  // Messages tell it when they are over, perhaps after the engine is gone.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Happening> happenings;
    bool stopping = false;
  };

  void run();
  void handle(const Happening& happening);
  void begin(const std::shared_ptr<Record>& record);
  void on_message(const Happening& happening);
  void poll();
  void on_sum(const std::shared_ptr<Record>& record, int segment, proto::RankSet set);
  void on_decided(const std::shared_ptr<Record>& record);
  void on_over(Record& record);
  void look_at_deadlines();
  void fail(Record& record, const Error& why);
  void fail_all(const Error& why);
  void end(Record& record, const Status& status);
  void drop_settled();

  void listen(int peer);
  void post(const std::shared_ptr<Record>& record, const Happening& happening, std::uint32_t tag,
            bool sends, std::byte* data, std::int64_t elements);
  void send_data(const std::shared_ptr<Record>& record, int peer, int segment, std::uint32_t tag,
                 std::byte* data, std::int64_t elements);
  // Exchanges a receive that has not begun for an empty one.
  void refuse(const std::shared_ptr<Record>& record,
              std::map<std::pair<int, int>, Receive>& receives, int peer, int segment);
  [[nodiscard]] std::size_t bytes_of(const Record& record, std::int64_t elements) const;
  [[nodiscard]] std::byte* place(const Record& record, std::byte* base, int owner,
                                 int segment) const;

  StragglerEngineOptions options_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::mutex order_;  // held while a call is passed on
  std::thread thread_;

  // Used by the thread alone.
  std::shared_ptr<Mailbox> box_;
  proto::StragglerGroup group_;
  std::map<std::uint64_t, std::shared_ptr<Record>> records_;
  std::vector<std::vector<std::byte>> letters_;  // [peer]: memory for its next message
  std::map<int, Error> lost_;
  std::optional<Error> failed_;

  std::mutex mutex_;  // guards what follows, and the results of operations
  std::condition_variable changed_;
  proto::StragglerCounts counts_;
  int unsettled_ = 0;
  bool left_ = false;
};

}  // namespace thalweg::net
