#include "collective/schedule.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "collective/world.h"
#include "plan/scheme.h"

namespace thalweg::proto::collective_test {
namespace {

constexpr Duration kHangUpTime = Duration::milliseconds(250);
constexpr std::uint64_t kMostActions = 2'000'000;
// Longer than all calls of a schedule may take.
constexpr Time kHorizon = Time::at(Duration::milliseconds(200'000));

enum class Kind : std::uint8_t { kCall, kDeliver, kTimer, kConsult, kLeave, kHangUp };
struct Event {
  Time at;
  std::uint64_t order;
  Kind kind;
  int a;
  int b;
  bool operator>(const Event& other) const {
    return std::tuple(at, order) > std::tuple(other.at, other.order);
  }
};

// The schemes that plan an allreduce of so many ranks on one switch.
const std::vector<std::string>& schemes_for(int ranks) {
  static std::vector<std::vector<std::string>> kept(64);
  std::vector<std::string>& names = kept[static_cast<std::size_t>(ranks)];
  if (!names.empty()) return names;
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    const std::string name(scheme->name);
    if (shared_plan(name, ranks, ranks)) names.push_back(name);
  }
  return names;
}

class Schedule {
 public:
  Schedule(const ScheduleOptions& options, std::uint64_t seed)
      : options_(options),
        prng_(seed),
        ranks_(2 +
               static_cast<int>(prng_.below(static_cast<std::uint64_t>(options.most_ranks - 1)))),
        // Blame needs frames that are fast against the moment by which some give up early.
        slowest_us_(static_cast<std::int64_t>(
            1 + prng_.below(options.trouble == Trouble::kNone ? 2'000 : 200))),
        world_(
            make_options(), prng_.next(), [this](int from, int to) { return delay(from, to); },
            [this](int from, int to, Time at) { push(at, Kind::kDeliver, from, to); }),
        timers_(static_cast<std::size_t>(ranks_)),
        call_due_(static_cast<std::size_t>(ranks_)) {}

  ScheduleReport run() {
    for (int r = 0; r < ranks_; ++r) plan_call(r);
    if (options_.trouble == Trouble::kNoCall) trouble_in(0);
    while (!events_.empty() && report_.actions < kMostActions && world_.violation().empty()) {
      // A rank that makes no call more and whose streams are stalled says so every second.
      if (options_.trouble == Trouble::kNoCall && now_ > kHorizon) break;
      const Event event = events_.top();
      events_.pop();
      now_ = std::max(now_, event.at);
      act(event);
      look_around();
    }
    report_.violation = world_.final_violation(culprit_);
    if (report_.violation.empty() && report_.actions == kMostActions) {
      report_.violation = "it never comes to rest";
    }
    return report_;
  }

 private:
  WorldOptions make_options() {
    const auto& names = schemes_for(ranks_);
    WorldOptions options{.ranks = ranks_,
                         .forgets_order = options_.forgets_order,
                         .forgets_stalls = options_.forgets_stalls};
    const auto plan = [&] {
      const std::string& name = names[prng_.below(names.size())];
      const auto elements =
          static_cast<std::int64_t>(ranks_) * (1 + static_cast<std::int64_t>(prng_.below(3)));
      return shared_plan(name, ranks_, elements);
    };
    const std::size_t calls = 1 + prng_.below(5);
    for (std::size_t i = 0; i < calls; ++i) {
      options.calls.push_back({plan(), static_cast<int>(prng_.below(3))});
    }
    for (int r = 0; r < ranks_; ++r) options.in_flight.push_back(1 + prng_.below(4));
    options.capacity = 1 + prng_.below(6);
    options.most_bytes = 4 + prng_.below(200);
    culprit_ = options_.trouble == Trouble::kNone
                   ? -1
                   : static_cast<int>(prng_.below(static_cast<std::uint64_t>(ranks_)));
    trouble_call_ = prng_.below(calls);
    trouble_at_ = prng_.below(8 + static_cast<std::uint64_t>(ranks_) * 24);
    if (options_.trouble == Trouble::kDiffers) {
      options.differs = culprit_;
      options.differs_at = trouble_call_;
      if (prng_.below(2) == 0) {
        options.differs_by = plan();
        // The text of an equal plan is equal: then nobody differs.
        if (options.differs_by->text == options.calls[trouble_call_].plan->text) {
          options.differs_by = nullptr;
        }
      }
    }
    return options;
  }

  Duration delay(int from, int to) {
    const std::uint64_t slow =
        mix_bits(static_cast<std::uint64_t>(from * 64 + to)) % 4 == 0 ? 8 : 1;
    const auto most = static_cast<std::uint64_t>(slowest_us_) * slow;
    return Duration::microseconds(static_cast<std::int64_t>(1 + prng_.below(most)));
  }

  void push(Time at, Kind kind, int a, int b = 0) { events_.push({at, order_++, kind, a, b}); }

  // A rank computes for a while before its next call. Sometimes it is late by many seconds.
  void plan_call(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (call_due_[index] || !world_.may_call(rank)) return;
    call_due_[index] = true;
    auto us = static_cast<std::int64_t>(prng_.below(3'000));
    if (options_.trouble == Trouble::kNone && prng_.below(20) == 0) {
      us += static_cast<std::int64_t>(prng_.below(3'000'000));
    }
    if (world_.dials(rank)) us = 100'000;
    push(now_ + Duration::microseconds(us), Kind::kCall, rank);
  }

  void trouble_in(std::uint64_t actions) {
    if (troubled_ || culprit_ < 0 || actions < trouble_at_) return;
    if (options_.trouble == Trouble::kDeath) {
      troubled_ = true;
      world_.die(culprit_, now_, prng_.below(4));
      hang_ups_from(culprit_);
    } else if (options_.trouble == Trouble::kFreeze) {
      troubled_ = true;
      world_.freeze(culprit_);
    }
  }

  void hang_ups_from(int from) {
    for (int to = 0; to < ranks_; ++to) {
      if (world_.hangs(from, to)) push(now_ + kHangUpTime, Kind::kHangUp, from, to);
    }
  }

  void act(const Event& event) {
    ++report_.actions;
    switch (event.kind) {
      case Kind::kCall:
        call_due_[static_cast<std::size_t>(event.a)] = false;
        if (options_.trouble == Trouble::kNoCall && event.a == culprit_ &&
            world_.calls(event.a).size() == trouble_call_) {
          world_.stop_calling(event.a);
        }
        if (world_.may_call(event.a)) world_.call(event.a, now_);
        break;
      case Kind::kDeliver:
        if (!world_.may_deliver(event.a, event.b)) break;
        if (world_.arrival(event.a, event.b) > now_) break;
        world_.deliver(event.a, event.b, now_);
        if (!world_.may_deliver(event.a, event.b)) hang_ups_from(event.a);
        break;
      case Kind::kTimer:
        world_.consult(event.a, now_);
        if (world_.next_timer(event.a) && *world_.next_timer(event.a) <= now_) {
          world_.timer(event.a, now_);
          push(now_ + Duration::milliseconds(100), Kind::kConsult, event.a);
        }
        break;
      case Kind::kLeave:
        if (world_.may_leave(event.a)) {
          world_.leave(event.a, now_);
          hang_ups_from(event.a);
        }
        break;
      case Kind::kHangUp:
        if (world_.hangs(event.a, event.b)) world_.hang_up(event.a, event.b, now_);
        break;
      case Kind::kConsult:
        world_.consult(event.a, now_);
        break;
    }
    trouble_in(report_.actions);
  }

  void look_around() {
    for (int r = 0; r < ranks_; ++r) {
      plan_call(r);
      std::optional<Time>& set = timers_[static_cast<std::size_t>(r)];
      const std::optional<Time> next = world_.next_timer(r);
      if (next && (!set || *set != *next)) push(std::max(*next, now_), Kind::kTimer, r);
      set = next;
      if (world_.may_leave(r) && !leaving_.contains(r)) {
        leaving_.insert(r);
        if (prng_.below(2) == 0) {
          push(now_ + Duration::microseconds(static_cast<std::int64_t>(prng_.below(5'000))),
               Kind::kLeave, r);
        }
      }
      report_.failed = report_.failed || world_.broken(r);
    }
  }

  ScheduleOptions options_;
  Prng prng_;
  int ranks_;
  std::int64_t slowest_us_;
  int culprit_ = -1;
  std::size_t trouble_call_ = 0;
  std::uint64_t trouble_at_ = 0;
  bool troubled_ = false;
  Time now_;
  std::uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  World world_;
  std::vector<std::optional<Time>> timers_;
  std::vector<bool> call_due_;
  std::set<int> leaving_;
  ScheduleReport report_;
};

}  // namespace

ScheduleReport run_schedule(const ScheduleOptions& options, std::uint64_t seed) {
  return Schedule(options, seed).run();
}

}  // namespace thalweg::proto::collective_test
