// Ranks that run collectives in virtual time: proto::Collective decides, exec::StreamExecutor
// computes, and this world is their driver, their streams and their callers. A stream keeps its
// frames in order.
//
// The world only offers actions: a rank makes its next call, a stream delivers its next frame, a
// timer fires, a rank dies. Who chooses them, by a random clock (schedule.h) or exhaustively
// (explore.h), is not its business. What is checked in every action is in `violation`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "base/units.h"
#include "exec/rank_plan.h"
#include "exec/stream_executor.h"
#include "proto/collective/collective.h"

namespace thalweg::proto::collective_test {

// A plan, cut to all its ranks, which many worlds use.
struct SharedPlan {
  std::string text;
  std::int64_t elements = 0;
  std::vector<exec::RankPlan> of_rank;
  std::vector<std::vector<std::size_t>> offsets;  // [rank][buffer], in bytes
};
// An allreduce of int64 by a scheme. Plans are made once and kept.
std::shared_ptr<const SharedPlan> shared_plan(const std::string& scheme, int ranks,
                                              std::int64_t elements);

// One call, the same on all ranks except for those that differ.
struct WorldCallSpec {
  std::shared_ptr<const SharedPlan> plan;
  int priority = 0;
};

class WorldCall final : public CollectiveCall {
 public:
  WorldCall(const WorldCallSpec& spec, int rank, std::size_t index);

  [[nodiscard]] const std::vector<Rank>& peers() const override { return plan_->peers(); }
  [[nodiscard]] bool takes(Rank peer, std::uint32_t arrival, std::uint32_t bytes) const override {
    return executor.takes(peer, arrival, bytes);
  }
  [[nodiscard]] bool has_data_for(Rank peer) const override { return executor.has_data_for(peer); }
  [[nodiscard]] bool needs(Rank peer) const override { return executor.needs(peer); }
  [[nodiscard]] std::optional<Rank> waits_for() const override { return executor.waits_for(); }
  [[nodiscard]] bool done() const override { return executor.done(); }
  [[nodiscard]] const exec::RankPlan& plan() const { return *plan_; }
  // Starts the executor on this rank's contribution.
  void begin();
  void encode_state(std::string& out) const;
  // Whether every element is the sum over all ranks.
  [[nodiscard]] bool is_exact(int ranks) const;

  exec::StreamExecutor executor;
  std::optional<Status> result;
  bool began = false;

 private:
  std::shared_ptr<const SharedPlan> shared_;
  const exec::RankPlan* plan_;
  int rank_;
  std::size_t index_;
  std::vector<std::int64_t> tensor_;
};

struct WorldOptions {
  int ranks = 2;
  std::vector<WorldCallSpec> calls = {};
  Duration limit = Duration::milliseconds(20'000);
  std::vector<std::size_t> in_flight = {};  // [rank]: the most calls that it runs at once
  std::size_t capacity = 4;                 // data frames that a stream holds
  std::size_t most_bytes = 64;              // of a data frame
  bool whole_frames = false;                // frames are as long as they can be
  // A planted bug: every rank believes that its peers have started all operations, so it sends data
  // of any operation at any time.
  bool forgets_order = false;
  // A planted bug: a driver reads on behind a frame that has to wait.
  bool forgets_stalls = false;
  // This rank makes this call with another text, or with another plan.
  int differs = -1;
  std::size_t differs_at = 0;
  std::shared_ptr<const SharedPlan> differs_by = nullptr;  // null: only its text differs
};

class World {
 public:
  // `delay(from, to)`: how long the next frame takes. `on_item`: called for every frame that was
  // sent or may be read again, with the time of its arrival.
  World(WorldOptions options, std::uint64_t seed, std::function<Duration(int, int)> delay,
        std::function<void(int, int, Time)> on_item);

  [[nodiscard]] bool may_call(int rank) const;
  void call(int rank, Time now);
  // Whether the stream has a frame that may be read, whenever it arrives.
  [[nodiscard]] bool may_deliver(int from, int to) const;
  [[nodiscard]] Time arrival(int from, int to) const { return stream(from, to).items.front().at; }
  void deliver(int from, int to, Time now);
  [[nodiscard]] std::optional<Time> next_timer(int rank) const;
  void timer(int rank, Time now);
  // The rank's process ends. Some of the last frames that it wrote are lost.
  void die(int rank, Time now, std::size_t lost_frames);
  // The rank's process stops, and its streams stay.
  void freeze(int rank) { at(rank).frozen = true; }
  // The rank makes no call from this one on, and answers.
  void stop_calling(int rank) { at(rank).calls_until = at(rank).calls.size(); }
  // A rank whose calls are over leaves.
  [[nodiscard]] bool may_leave(int rank) const;
  void leave(int rank, Time now);
  // A stream that is stalled and whose writer has ended.
  [[nodiscard]] bool hangs(int from, int to) const;
  // What the driver does about it after a while: it drops data and reads the rest.
  void hang_up(int from, int to, Time now);
  // A stream of a rank that died, with frames that may be lost: all but a hello and one that the
  // reader has begun to read.
  [[nodiscard]] bool may_cut(int from, int to) const;
  void cut(int from, int to);

  [[nodiscard]] int ranks() const { return options_.ranks; }
  [[nodiscard]] bool lives(int rank) const { return !at(rank).dead && !at(rank).frozen; }
  [[nodiscard]] bool all_over(int rank) const;
  // When a rank that cannot make its next call gives up trying.
  [[nodiscard]] std::optional<Time> dials_until(int rank) const { return at(rank).dial_until; }
  // A rank that has waited for a second asks the store whether another has announced a failure.
  void consult(int rank, Time now);
  // The rank cannot make its next call, because a lower rank that it needs is gone.
  [[nodiscard]] bool dials(int rank) const { return at(rank).dial_until.has_value(); }
  [[nodiscard]] const std::vector<std::unique_ptr<WorldCall>>& calls(int rank) const {
    return at(rank).calls;
  }
  [[nodiscard]] const std::optional<Error>& broken(int rank) const {
    return at(rank).core->broken();
  }
  // What is wrong: in an action so far, or in the end, when nothing can happen any more. Empty:
  // nothing is.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  // `culprit`: the rank that died, hangs or differs; -1: none.
  [[nodiscard]] std::string final_violation(int culprit) const;
  // Appends the state of all ranks and streams: equal strings mean that the same can happen from
  // now on. Left out are when frames arrive, the state of a rank that died, and what the store has.
  void encode_state(std::string& out) const;

 private:
  struct Hello {};
  struct Data {
    DataFrame frame;
    std::vector<std::byte> bytes;
  };
  struct Control {
    std::uint32_t started;
    ControlFrame frame;
  };
  struct Closed {};
  struct Item {
    std::variant<Hello, Data, Control, Closed> what;
    Time at;
  };
  struct Stream {
    std::deque<Item> items;
    std::size_t data = 0;   // data frames among them
    Time last;              // arrival of the last
    bool stalled = false;   // its first frame waits for a call
    bool drops = false;     // data is dropped
    bool closed = false;    // its reader reads no more
    bool writable = false;  // its writer is connected
  };
  struct RankState {
    std::unique_ptr<Collective> core;
    std::vector<std::unique_ptr<WorldCall>> calls;  // that it has made
    std::size_t calls_until = 0;
    std::size_t running = 0;
    bool dead = false;
    bool frozen = false;
    bool left = false;
    std::optional<Time> dial_until = {};  // it tries to reach a rank, until then at most
  };

  [[nodiscard]] RankState& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const RankState& at(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Stream& stream(int from, int to) {
    return streams_[static_cast<std::size_t>(from * options_.ranks + to)];
  }
  [[nodiscard]] const Stream& stream(int from, int to) const {
    return streams_[static_cast<std::size_t>(from * options_.ranks + to)];
  }
  void write(int from, int to, decltype(Item::what) what, Time now);
  // Whether a rank that the call needs is gone and was never connected.
  [[nodiscard]] std::optional<Rank> lacking(int rank, const CollectiveCall& call) const;
  void connect(int rank, int peer, Time now);
  void join(int rank, int peer);
  void close(int from, int to, const std::string& why);
  [[nodiscard]] static std::size_t kept_by_cut(const Stream& in);
  // True: the frame was taken off the stream.
  bool take(int from, int to, const Data& data, Time now);
  void progress(int rank, WorldCall& call);
  // Polls everything of the rank until nothing is left to do.
  void pump(int rank, Time now);
  bool send_data(int rank, int peer, Time now);
  void complain(std::string text) {
    if (violation_.empty()) violation_ = std::move(text);
  }

  WorldOptions options_;
  Prng prng_;
  std::function<Duration(int, int)> delay_;
  std::function<void(int, int, Time)> on_item_;
  std::vector<RankState> ranks_;
  std::vector<Stream> streams_;
  std::string violation_;
  std::optional<Error> announced_;  // the first failure, as the store has it
};

}  // namespace thalweg::proto::collective_test
