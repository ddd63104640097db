// Allreduces with a straggler bound in virtual time: the groups of all ranks, with data of one
// number a segment, random delays of every message (so that they overtake each other), ranks that
// start late, stop for a while at any moment, or die.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/prng.h"
#include "proto/straggler/group.h"

namespace thalweg::proto {

struct StragglerWorldOptions {
  int ranks = 4;
  int calls = 60;
  std::int64_t elements = 1 << 17;
  double bound = 0.05;
  int window = 20;
  int in_flight = 1;          // calls that a rank starts before it waits for the first of them
  double stall_chance = 0.1;  // of a rank, for each call
  Duration stall = Duration::milliseconds(80);
  Duration computing = Duration::milliseconds(5);
  std::optional<int> dies = {};  // at a random moment
  // Rank 1 never gets further than this call, until the others have waited long.
  std::optional<int> sleeps_after = {};
};

class StragglerWorld {
 public:
  StragglerWorld(std::uint64_t seed, const StragglerWorldOptions& options)
      : options_(options), random_(seed) {
    layout_ = StragglerLayout::of(options.elements, sizeof(float), options.ranks);
    for (int r = 0; r < options.ranks; ++r) ranks_.emplace_back(r, options.ranks, pieces());
    for (int r = 0; r < options.ranks; ++r) at(random_time(5), r, [this, r] { begin(r); });
    if (options_.dies) at(random_time(400), *options_.dies, [this] { die(*options_.dies); });
  }

  // Runs until nothing happens any more.
  void run() {
    while (!events_.empty()) {
      auto event = events_.extract(events_.begin());
      now_ = event.key().first;
      if (now_ > Time::at(Duration::seconds(600))) break;
      const auto& [rank, what] = event.mapped();
      Member& member = ranks_[static_cast<std::size_t>(rank)];
      if (member.dead) continue;
      if (now_ < member.stopped) {
        at_time(member.stopped, rank, what);
        continue;
      }
      what();
    }
  }

  void check() const {
    for (const Member& member : ranks_) {
      if (member.dead) continue;
      if (options_.dies) {
        for (const auto& [call, blamed] : member.failed) EXPECT_EQ(blamed, *options_.dies);
        EXPECT_EQ(member.results.size() + member.failed.size(), member.started);
      } else {
        EXPECT_EQ(member.results.size(), static_cast<std::size_t>(options_.calls));
        EXPECT_EQ(member.group.dropped(), 0U);
      }
    }
    check_same();
    check_budget();
    if (!options_.dies) check_conservation();
  }

  // Contributions that were left out of all calls, in tensors of one rank.
  [[nodiscard]] double left_out() const { return ranks_[0].group.counts().contributions; }
  [[nodiscard]] std::uint64_t exact() const { return ranks_[0].group.counts().exact; }
  [[nodiscard]] Time end() const { return now_; }
  // The most calls that one rank was over with before another had started.
  [[nodiscard]] std::uint64_t furthest_behind() const { return furthest_behind_; }
  [[nodiscard]] std::size_t failures() const {
    std::size_t sum = 0;
    for (const Member& member : ranks_) sum += member.failed.size();
    return sum;
  }

 private:
  struct Result {
    std::vector<RankSet> sets;       // [piece]
    std::vector<std::int64_t> sums;  // [piece]
    bool operator==(const Result&) const = default;
  };
  struct Member {
    Member(int self, int ranks, std::size_t pieces)
        : rank(self), group(self, ranks), residual(pieces, 0) {}
    int rank;
    StragglerGroup group;
    std::vector<std::int64_t> residual;
    std::map<std::uint64_t, std::vector<std::int64_t>> contributions;              // [call][piece]
    std::map<std::uint64_t, std::map<std::pair<int, int>, std::int64_t>> arrived;  // at the owner
    std::map<std::uint64_t, std::vector<std::int64_t>> held;                       // [call][piece]
    std::map<std::uint64_t, Result> results;
    std::map<std::uint64_t, int> failed;
    std::int64_t given = 0;  // sum of all fresh contributions
    std::uint64_t started = 0;
    Time stopped;
    std::optional<Time> timer;
    bool dead = false;
  };
  using Event = std::pair<int, std::function<void()>>;

  [[nodiscard]] std::size_t pieces() const {
    return static_cast<std::size_t>(layout_.ranks * layout_.segments);
  }
  [[nodiscard]] std::size_t piece(int owner, int segment) const {
    return static_cast<std::size_t>(owner * layout_.segments + segment);
  }
  Duration random_time(int most_ms) {
    return Duration::microseconds(
        static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most_ms) * 1000)));
  }
  void at_time(Time when, int rank, std::function<void()> what) {
    events_[{when, order_++}] = {rank, std::move(what)};
  }
  void at(Duration after, int rank, std::function<void()> what) {
    at_time(now_ + after, rank, std::move(what));
  }
  Member& member(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // What a rank sends arrives after a random time.
  void send(int from, int to, std::function<void()> what) {
    if (member(from).dead) return;
    at(Duration::microseconds(500) + random_time(2), to, std::move(what));
  }

  void begin(int rank) {
    Member& own = member(rank);
    if (own.started >= static_cast<std::uint64_t>(options_.calls)) return;
    if (options_.sleeps_after && rank == 1 &&
        own.started == static_cast<std::uint64_t>(*options_.sleeps_after) && !slept_) {
      slept_ = true;
      at(Duration::seconds(5), rank, [this, rank] { begin(rank); });
      return;
    }
    if (random_.real() < options_.stall_chance) {
      at(random_time(12), rank, [this, rank] { member(rank).stopped = now_ + options_.stall; });
    }
    const std::uint64_t number = own.group.start(
        now_, {.layout = layout_, .bound = options_.bound, .window = options_.window});
    EXPECT_EQ(number, own.started++);
    std::vector<std::int64_t> contribution(pieces());
    for (std::size_t p = 0; p < pieces(); ++p) {
      const auto fresh = static_cast<std::int64_t>(random_.below(1000));
      own.given += fresh;
      contribution[p] = fresh + std::exchange(own.residual[p], 0);
    }
    own.contributions[number] = contribution;
    own.held[number].assign(pieces(), 0);
    for (int owner = 0; owner < options_.ranks; ++owner) {
      for (int s = 0; s < layout_.segments && owner != rank; ++s) {
        const std::int64_t value = contribution[piece(owner, s)];
        send(rank, owner, [=, this] { contribute(owner, number, rank, s, value); });
      }
    }
    drain(rank);
    if (own.started - own.results.size() - own.failed.size() <
        static_cast<std::uint64_t>(options_.in_flight)) {
      at(options_.computing, rank, [this, rank] { begin(rank); });
    }
  }

  void contribute(int owner, std::uint64_t call, int from, int segment, std::int64_t value) {
    // The driver of a rank takes no data for a call that the rank has not started.
    if (member(owner).started <= call) {
      if (!member(owner).failed.empty()) return;
      at(Duration::milliseconds(1), owner,
         [=, this] { contribute(owner, call, from, segment, value); });
      return;
    }
    member(owner).arrived[call][{from, segment}] = value;
    member(owner).group.on_contribution(now_, call, from, segment);
    drain(owner);
  }

  void take_result(int rank, std::uint64_t call, int owner, int segment, std::int64_t value) {
    if (member(rank).started <= call) {
      if (!member(rank).failed.empty()) return;
      at(Duration::milliseconds(1), rank,
         [=, this] { take_result(rank, call, owner, segment, value); });
      return;
    }
    member(rank).held[call][piece(owner, segment)] = value;
    member(rank).group.on_result(now_, call, owner, segment);
    drain(rank);
  }

  void drain(int rank) {
    Member& own = member(rank);
    StragglerEvent event;
    while (own.group.poll_event(event)) handle(own, event);
    StragglerGroup::Outgoing out;
    while (own.group.poll_transmit(out)) {
      send(rank, out.to, [this, out, rank] {
        // Through the codec, as on the network.
        std::vector<std::byte> bytes(straggler_message_bytes(options_.ranks));
        encode(out.message, options_.ranks, bytes);
        StragglerMessage message;
        ASSERT_TRUE(decode(bytes, options_.ranks, message));
        ASSERT_EQ(message, out.message);
        member(out.to).group.on_message(now_, rank, message);
        drain(out.to);
      });
    }
    const auto next = own.group.next_timeout();
    if (next && (!own.timer || *next < *own.timer)) {
      own.timer = std::max(*next, now_);
      at_time(*own.timer, rank, [this, rank] {
        member(rank).timer.reset();
        member(rank).group.on_timeout(now_);
        drain_after_timeout(rank);
      });
    }
  }

  // Timeouts that are asked for again and again at the same time would never end.
  void drain_after_timeout(int rank) {
    const auto next = member(rank).group.next_timeout();
    if (next && *next <= now_) FAIL() << "a timeout that does nothing";
    drain(rank);
  }

  void handle(Member& own, const StragglerEvent& event) {
    const int rank = own.rank;
    const std::uint64_t call = event.call;
    if (event.kind == StragglerEvent::Kind::kSum) {
      std::int64_t sum = own.contributions[call][piece(rank, event.segment)];
      for (int r = 0; r < options_.ranks; ++r) {
        if (r == rank || (event.set >> r & 1U) == 0) continue;
        sum += own.arrived[call].at({r, event.segment});
      }
      own.held[call][piece(rank, event.segment)] = sum;
      for (int to = 0; to < options_.ranks; ++to) {
        if (to == rank) continue;
        send(rank, to, [=, this] { take_result(to, call, rank, event.segment, sum); });
      }
    } else if (event.kind == StragglerEvent::Kind::kOver) {
      take_over(own, call);
    } else if (event.kind == StragglerEvent::Kind::kFailed) {
      own.failed[call] = event.rank;
    }
  }

  void take_over(Member& own, std::uint64_t call) {
    Result result;
    for (int owner = 0; owner < options_.ranks; ++owner) {
      for (int s = 0; s < layout_.segments; ++s) {
        const RankSet set = own.group.set_of_result(call, owner, s);
        result.sets.push_back(set);
        result.sums.push_back(set == 0 ? 0 : own.held[call][piece(owner, s)]);
        if ((set >> own.rank & 1U) == 0) {
          own.residual[piece(owner, s)] += own.contributions[call][piece(owner, s)];
        }
      }
    }
    own.results[call] = result;
    for (const Member& other : ranks_) {
      if (!other.dead && other.started <= call) {
        furthest_behind_ = std::max(furthest_behind_, call + 1 - other.started);
      }
    }
    if (std::ranges::all_of(ranks_, [&](const Member& m) { return m.results.contains(call); })) {
      for (Member& other : ranks_) other.group.on_settled(call);
    }
    const int rank = own.rank;
    at(options_.computing, rank, [this, rank] { begin(rank); });
  }

  void die(int rank) {
    member(rank).dead = true;
    for (int r = 0; r < options_.ranks; ++r) {
      if (r == rank) continue;
      // After everything that the rank still sent.
      at(Duration::milliseconds(20), r, [this, r, rank] {
        member(r).group.on_lost(now_, rank);
        drain(r);
      });
    }
  }

  void check_same() const {
    for (const Member& member : ranks_) {
      for (const auto& [call, result] : member.results) {
        for (const Member& other : ranks_) {
          const auto found = other.results.find(call);
          if (found == other.results.end()) continue;
          EXPECT_TRUE(result == found->second) << "call " << call;
        }
      }
    }
  }

  void check_budget() const {
    const Member& any = options_.dies == 0 ? ranks_[1] : ranks_[0];
    std::vector<double> left;
    for (const auto& [call, result] : any.results) {
      double sum = 0;
      for (int owner = 0; owner < options_.ranks; ++owner) {
        for (int s = 0; s < layout_.segments; ++s) {
          sum += static_cast<double>(layout_.count(owner, s)) *
                 (options_.ranks - std::popcount(result.sets[piece(owner, s)]));
        }
      }
      left.push_back(sum);
    }
    const auto window = static_cast<std::size_t>(options_.window);
    const double most =
        options_.bound * options_.window * options_.ranks * static_cast<double>(options_.elements);
    for (std::size_t first = 0; first < left.size(); ++first) {
      double sum = 0;
      for (std::size_t i = first; i < std::min(left.size(), first + window); ++i) sum += left[i];
      EXPECT_LE(sum, most * (1 + 1e-12)) << "calls from " << first;
    }
  }

  void check_conservation() const {
    std::int64_t given = 0;
    std::int64_t kept = 0;
    for (const Member& member : ranks_) {
      given += member.given;
      for (const std::int64_t value : member.residual) kept += value;
    }
    for (const auto& [call, result] : ranks_[0].results) {
      for (const std::int64_t value : result.sums) kept += value;
    }
    EXPECT_EQ(given, kept);
  }

  StragglerWorldOptions options_;
  Prng random_;
  StragglerLayout layout_;
  std::deque<Member> ranks_;
  std::map<std::pair<Time, std::uint64_t>, Event> events_;
  std::uint64_t order_ = 0;
  Time now_;
  std::uint64_t furthest_behind_ = 0;
  bool slept_ = false;
};

}  // namespace thalweg::proto
