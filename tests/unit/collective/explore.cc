#include "collective/explore.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/encode.h"
#include "base/prng.h"
#include "collective/world.h"

namespace thalweg::proto::collective_test {
namespace {

// The deadline of the calls; a rank asks after 1, 2 and 3 s.
constexpr Duration kLimit = Duration::milliseconds(4'000);

struct Step {
  enum class Kind : std::uint8_t { kCall, kDeliver, kHangUp, kCut, kTimer, kDie, kPass } kind;
  int a = 0;
  int b = 0;
};

std::string text_of(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kCall:
      return fmt::format("{} calls", step.a);
    case Step::Kind::kDeliver:
      return fmt::format("{} to {}", step.a, step.b);
    case Step::Kind::kHangUp:
      return fmt::format("{} hangs up on {}", step.b, step.a);
    case Step::Kind::kCut:
      return fmt::format("{} to {} lost", step.a, step.b);
    case Step::Kind::kTimer:
      return fmt::format("timer of {}", step.a);
    case Step::Kind::kDie:
      return fmt::format("{} dies", step.a);
    case Step::Kind::kPass:
      return "time passes";
  }
  return "?";
}

struct Fingerprint {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Fingerprint&) const = default;
};
struct FingerprintHash {
  std::size_t operator()(const Fingerprint& print) const { return print.low; }
};

Fingerprint fingerprint(const std::string& text) {
  Fingerprint print{text.size(), ~text.size()};
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
    print.low = mix_bits(print.low ^ word);
    print.high = mix_bits(print.high + (word ^ 0x9e3779b97f4a7c15)) ^ word;
  }
  return print;
}

// A world, its clock, and the rank that died.
struct State {
  std::unique_ptr<World> world;
  Time now;
  int dead = -1;
};

class Explorer {
 public:
  explicit Explorer(const Exploration& exploration) : about_(exploration) {}

  ExplorationReport run() {
    report_.complete = true;
    visit(replay());
    return report_;
  }

 private:
  // Worlds cannot be copied, so a state is made again by the steps that lead to it.
  State replay() const {
    WorldOptions options{.ranks = about_.ranks,
                         .limit = kLimit,
                         .in_flight = about_.in_flight,
                         .capacity = 1'000,
                         .most_bytes = 1'000,
                         .whole_frames = true,
                         .forgets_order = about_.forgets_order,
                         .forgets_stalls = about_.forgets_stalls};
    for (const int priority : about_.priorities) {
      options.calls.push_back(
          {shared_plan(about_.scheme, about_.ranks, about_.elements), priority});
    }
    State state{std::make_unique<World>(
                    options, 1, [](int, int) { return Duration(); }, [](int, int, Time) {}),
                Time()};
    for (const Step& step : path_) apply(state, step);
    return state;
  }

  static void apply(State& state, const Step& step) {
    World& world = *state.world;
    switch (step.kind) {
      case Step::Kind::kCall:
        return world.call(step.a, state.now);
      case Step::Kind::kDeliver:
        return world.deliver(step.a, step.b, state.now);
      case Step::Kind::kHangUp:
        return world.hang_up(step.a, step.b, state.now);
      case Step::Kind::kCut:
        return world.cut(step.a, step.b);
      case Step::Kind::kTimer:
        return world.timer(step.a, state.now);
      case Step::Kind::kDie:
        state.dead = step.a;
        return world.die(step.a, state.now, 0);
      case Step::Kind::kPass:
        state.now = *next_time(world);
    }
  }

  // When a rank wakes next: for a timer, or because it no longer tries to reach another.
  static std::optional<Time> next_time(const World& world, int rank) {
    std::optional<Time> next = world.next_timer(rank);
    const std::optional<Time> dials = world.dials_until(rank);
    if (dials && world.may_call(rank) && (!next || *dials < *next)) next = dials;
    return next;
  }
  static std::optional<Time> next_time(const World& world) {
    std::optional<Time> next;
    for (int r = 0; r < world.ranks(); ++r) {
      const std::optional<Time> each = next_time(world, r);
      if (each && (!next || *each < *next)) next = each;
    }
    return next;
  }

  // The ranks have no more to do. A rank whose streams are stalled goes on telling so.
  static bool is_over(const World& world) {
    for (int r = 0; r < world.ranks(); ++r) {
      if (world.lives(r) && (!world.all_over(r) || (world.dials(r) && world.may_call(r)))) {
        return false;
      }
    }
    return true;
  }

  // The steps that can be made now, other than a death.
  static std::vector<Step> steps_of(const State& state) {
    const World& world = *state.world;
    std::vector<Step> steps;
    for (int a = 0; a < world.ranks(); ++a) {
      const std::optional<Time> dials = world.dials_until(a);
      if (world.may_call(a) && (!dials || *dials <= state.now)) {
        steps.push_back({Step::Kind::kCall, a});
      }
      const std::optional<Time> timer = world.next_timer(a);
      if (timer && *timer <= state.now) steps.push_back({Step::Kind::kTimer, a});
      for (int b = 0; b < world.ranks(); ++b) {
        if (world.may_deliver(a, b)) steps.push_back({Step::Kind::kDeliver, a, b});
        if (world.hangs(a, b)) steps.push_back({Step::Kind::kHangUp, a, b});
        if (world.may_cut(a, b)) steps.push_back({Step::Kind::kCut, a, b});
      }
    }
    return steps;
  }

  bool is_new(const State& state) {
    std::string text;
    text.reserve(1'024);
    encode(text, state.now);
    state.world->encode_state(text);
    return seen_.insert(fingerprint(text)).second;
  }

  void visit(State state) {
    if (!is_new(state)) return;
    ++report_.states;
    complain(state.world->violation());
    if (report_.states >= about_.most_states) report_.complete = false;
    std::vector<Step> steps = steps_of(state);
    if (steps.empty()) {
      if (is_over(*state.world) || !next_time(*state.world)) {
        check_end(state);
      } else {
        steps.push_back({Step::Kind::kPass});
      }
    }
    for (int r = 0; about_.death && state.dead < 0 && r < about_.ranks; ++r) {
      steps.push_back({Step::Kind::kDie, r});
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!report_.violation.empty() || !report_.complete) return;
      ++report_.transitions;
      if (steps[i].kind == Step::Kind::kTimer) ++report_.timers;
      State next = i == 0 ? std::move(state) : replay();
      path_.push_back(steps[i]);
      apply(next, steps[i]);
      visit(std::move(next));
      path_.pop_back();
    }
  }

  void check_end(const State& state) {
    ++report_.ends;
    for (int r = 0; r < about_.ranks; ++r) {
      if (!state.world->lives(r) || !state.world->broken(r)) continue;
      ++report_.failed;
      break;
    }
    complain(state.world->final_violation(state.dead));
    for (int r = 0; r < about_.ranks; ++r) {
      if (!state.world->lives(r)) continue;
      for (const auto& call : state.world->calls(r)) check_blame(r, *call, state.dead);
    }
  }

  void check_blame(int rank, const WorldCall& call, int dead) {
    if (!call.result || call.result->ok()) return;
    const Error& error = call.result->error();
    if (error.rank() == dead) return;
    complain(fmt::format("rank {} blames rank {}, not rank {}: {}", rank, error.rank().value_or(-1),
                         dead, error.message()));
  }

  void complain(const std::string& violation) {
    if (violation.empty() || !report_.violation.empty()) return;
    report_.violation = violation + " after:";
    for (const Step& step : path_) report_.violation += ' ' + text_of(step) + ';';
  }

  Exploration about_;
  std::vector<Step> path_;
  std::unordered_set<Fingerprint, FingerprintHash> seen_;
  ExplorationReport report_;
};

}  // namespace

ExplorationReport explore(const Exploration& exploration) { return Explorer(exploration).run(); }

}  // namespace thalweg::proto::collective_test
