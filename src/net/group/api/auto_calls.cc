#include "net/group/api/auto_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// A kind begins trials after so many calls: the first ones of a program are like no others.
constexpr std::int64_t kFirstCalls = 4;
// The least share of all bytes that is worth trials.
constexpr double kLeastShare = 1.0 / 8;

// The candidates that had trials, the fastest first: "ring over tcp 12.1 ms, …".
std::string times_of(const AutoCalls& calls) {
  std::vector<std::pair<double, std::size_t>> tried;
  for (std::size_t w = 0; w < calls.candidates.size(); ++w) {
    if (const auto mean = calls.choice->mean_ms(w)) tried.emplace_back(*mean, w);
  }
  std::ranges::sort(tried);
  std::string text;
  for (const auto& [mean, w] : tried) {
    text +=
        fmt::format("{}{} {:.3g} ms{}", text.empty() ? "" : ", ", calls.candidates[w].to_string(),
                    mean, calls.choice->dropped(w) ? " (left early)" : "");
  }
  for (std::size_t w = 0; w < calls.candidates.size(); ++w) {
    if (calls.choice->mean_ms(w) || !calls.choice->dropped(w)) continue;
    text +=
        fmt::format("{}{} far slower", text.empty() ? "" : ", ", calls.candidates[w].to_string());
  }
  return text;
}

}  // namespace

AutoKind auto_kind_of(ReduceOp op, DType type, std::int64_t bytes, bool bounded) {
  const auto width = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1)));
  const int size_class = static_cast<int>(width) - 1;
  return {op, type, size_class, bounded};
}

std::string to_string(const AutoKind& kind) {
  const auto size = [](int power) {
    constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return fmt::format("{}{}", 1 << power % 10, kUnits.at(static_cast<std::size_t>(power / 10)));
  };
  return fmt::format("allreduce of {}, {}, {} to {}{}", name_of(kind.type), name_of(kind.op),
                     size(kind.size_class), size(kind.size_class + 1),
                     kind.bounded ? ", with a loss bound" : "");
}

std::string AutoCandidate::to_string() const {
  if (scheme.empty()) return name_of(transport);
  return fmt::format("{} over {}", scheme, name_of(transport));
}

bool AutoTable::follows(const AutoCalls& kind) const {
  return first != nullptr && first != &kind && kind.bytes < kLeastShare * bytes;
}

bool AutoTable::may_begin(const AutoCalls& kind) const {
  if (trying != nullptr || kind.choice || kind.count < kFirstCalls || follows(kind)) return false;
  return std::ranges::all_of(
      calls, [&](const auto& one) { return one.second.choice || one.second.bytes <= kind.bytes; });
}

const AutoCandidate& AutoTable::untried(const AutoCalls& kind) const {
  if (!follows(kind) || !first->decided()) return kind.candidates.front();
  const AutoCandidate& wanted = first->candidates[first->choice->chosen()];
  const auto found = std::ranges::find(kind.candidates, wanted);
  return found == kind.candidates.end() ? kind.candidates.front() : *found;
}

AutoDecision AutoTable::decision(const AutoCalls& kind) const {
  AutoDecision decision;
  decision.kind = net::to_string(kind.kind);
  decision.calls = kind.count;
  if (!kind.choice) {
    decision.decided = follows(kind) && first->decided();
    decision.chosen = untried(kind).to_string();
    decision.why = follows(kind)
                       ? "too few bytes for trials: it follows " + net::to_string(first->kind)
                       : "what the planner expects: no trials yet";
    return decision;
  }
  const proto::AutoChoice& choice = *kind.choice;
  decision.decided = choice.decided();
  decision.chosen = kind.candidates[choice.chosen()].to_string();
  if (kind.candidates.size() == 1) {
    decision.why = "no other way is possible";
  } else if (choice.decided()) {
    decision.why = fmt::format("mean of trials on the slowest rank: {}", times_of(kind));
    if (choice.decisions() > 1) {
      decision.why +=
          fmt::format("; times have changed, so this is decision {}", choice.decisions());
    }
  } else {
    decision.why = "the best so far, trials go on";
  }
  decision.trials = static_cast<std::int64_t>(choice.trials());
  decision.trials_ms = choice.trials_ms();
  decision.extra_ms = choice.extra_ms();
  return decision;
}

std::function<void()> AutoMeter::watch(const AutoKind& kind, bool dealt,
                                       std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (flying_++ == 0) since_ = monotonic_now();
  }
  return [self = shared_from_this(), kind, dealt, then = std::move(then)] {
    {
      const std::lock_guard lock(self->mutex_);
      if (--self->flying_ == 0) self->busy_ += monotonic_now() - self->since_;
      if (dealt) self->over_.push_back(kind);
    }
    if (then) then();
  };
}

Duration AutoMeter::busy() const {
  const std::lock_guard lock(mutex_);
  return flying_ == 0 ? busy_ : busy_ + (monotonic_now() - since_);
}

std::vector<AutoKind> AutoMeter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(over_, {});
}

}  // namespace thalweg::net
