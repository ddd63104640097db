#include "proto/auto/auto_choice.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::proto {
namespace {

// A cold trial also makes connections. A candidate leaves after it only if it took this many times
// as long as the best and this much more.
constexpr double kHopeless = 4;
constexpr double kSetUpMs = 100;

// A candidate leaves if its mean is above this many times the best, after so many trials.
double limit_after(int trials) {
  constexpr std::array kLimits = {2.0, 1.5, 1.3, 1.15};
  const auto last = static_cast<int>(kLimits.size()) - 1;
  return kLimits.at(static_cast<std::size_t>(std::clamp(trials - 1, 0, last)));
}

std::uint64_t next_multiple(std::uint64_t of, std::uint64_t from) {
  return (from + of - 1) / of * of;
}

}  // namespace

AutoChoice::AutoChoice(std::size_t candidates, const AutoRules& rules)
    : rules_(rules), candidates_(candidates), window_(rules.window) {
  CHECK(candidates >= 1 && candidates <= kAutoMostCandidates);
  if (candidates == 1) {
    decided_ = true;
    return;
  }
  begin_cycle(true);
}

std::optional<std::size_t> AutoChoice::measured_by(std::uint64_t call) const {
  if (call < cycle_.first || call >= cycle_.first + cycle_.calls) return std::nullopt;
  return cycle_.order[static_cast<std::size_t>((call - cycle_.first) / cycle_.block)];
}

AutoChoice::Deal AutoChoice::deal() {
  const std::uint64_t call = next_++;
  depth_ = std::max(depth_, next_ - over_);
  return {call, measured_by(call).value_or(best_)};
}

void AutoChoice::on_time(std::uint64_t call, Duration time) {
  const auto candidate = measured_by(call);
  if (!candidate) return;
  candidates_[*candidate].own_ms += time.ms();
  ++candidates_[*candidate].own_calls;
}

AutoReport AutoChoice::report() {
  AutoReport values = {};
  values[0] = static_cast<double>(depth_);
  for (const std::size_t c : cycle_.order) {
    const Candidate& candidate = candidates_[c];
    values.at(1 + 2 * c) =
        candidate.own_calls == 0 ? 0 : candidate.own_ms / static_cast<double>(candidate.own_calls);
    values.at(2 + 2 * c) = candidate.own_calls < cycle_.block ? 1 : 0;
  }
  depth_ = 0;
  pending_ = true;
  return values;
}

void AutoChoice::on_combined(std::span<const double> combined) {
  CHECK(pending_ && combined.size() == kAutoFields);
  pending_ = false;
  block_ = std::clamp(static_cast<std::uint64_t>(std::max(combined[0], 1.0)), std::uint64_t{1},
                      rules_.most_block);
  std::vector<Sample> samples;
  for (const std::size_t c : cycle_.order) {
    if (combined[2 + 2 * c] == 0) samples.push_back({c, combined[1 + 2 * c]});
  }
  if (cycle_.trial) {
    take_trials(samples);
  } else if (samples.empty()) {
    begin_window();
  } else {
    take_window(samples.front().ms);
  }
}

void AutoChoice::take_trials(const std::vector<Sample>& samples) {
  ++cycles_;
  double best_now = 0;
  for (const Sample& sample : samples) {
    best_now = best_now == 0 ? sample.ms : std::min(best_now, sample.ms);
  }
  std::size_t best_cold = best_;
  for (const Sample& sample : samples) {
    Candidate& candidate = candidates_[sample.candidate];
    const auto calls = static_cast<double>(cycle_.block);
    trials_ += cycle_.block;
    trials_ms_ += sample.ms * calls;
    extra_ms_ += (sample.ms - best_now) * calls;
    if (cycle_.cold) {
      spent_ += std::max(0.0, sample.ms - best_now - kSetUpMs);
      if (sample.ms > kHopeless * best_now + kSetUpMs) candidate.live = false;
      if (sample.ms == best_now) best_cold = sample.candidate;
      continue;
    }
    spent_ += (sample.ms - best_now) * calls;
    candidate.sum_ms += sample.ms;
    ++candidate.count;
  }
  if (const auto fast = fastest()) {
    const double best_ms = candidates_[*fast].mean();
    drop_slow(best_ms);
    drop_costly(best_ms);
    best_ = *fast;
  } else if (!candidates_[best_].live) {
    best_ = best_cold;
  }
  const bool all_tried = std::ranges::all_of(candidates_, [&](const Candidate& candidate) {
    return !candidate.live || candidate.count >= rules_.rounds;
  });
  if (live_count() == 1 || all_tried || cycles_ >= rules_.most_cycles) {
    decide();
  } else {
    begin_cycle(false);
  }
}

std::optional<std::size_t> AutoChoice::fastest() const {
  std::optional<std::size_t> best;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    const Candidate& candidate = candidates_[c];
    if (!candidate.live || candidate.count == 0) continue;
    if (!best || candidate.mean() < candidates_[*best].mean()) best = c;
  }
  return best;
}

void AutoChoice::drop_slow(double best_ms) {
  for (Candidate& candidate : candidates_) {
    if (candidate.count == 0) continue;
    if (candidate.mean() > limit_after(candidate.count) * best_ms) candidate.live = false;
  }
}

// Drops the slowest until another cycle of trials fits the budget.
void AutoChoice::drop_costly(double best_ms) {
  const auto block = static_cast<double>(block_);
  while (true) {
    Candidate* slowest = nullptr;
    double more = 0;
    for (Candidate& candidate : candidates_) {
      if (!candidate.live || candidate.count == 0) continue;
      more += (candidate.mean() - best_ms) * block;
      if (slowest == nullptr || candidate.mean() > slowest->mean()) slowest = &candidate;
    }
    if (spent_ + more <= rules_.budget * best_ms * block) return;
    if (slowest == nullptr || slowest->mean() <= best_ms) return;
    slowest->live = false;
  }
}

std::size_t AutoChoice::live_count() const {
  return static_cast<std::size_t>(std::ranges::count(candidates_, true, &Candidate::live));
}

void AutoChoice::try_again() {
  drifted_ = false;
  for (Candidate& candidate : candidates_) candidate = {};
  incumbent_ = best_;
  cycles_ = 0;
  spent_ = 0;
  decided_ = false;
  begin_cycle(false);
}

// Candidates take turns in beginning a cycle, because calls of a program may have a rhythm.
void AutoChoice::begin_cycle(bool cold) {
  const std::uint64_t block = cold ? 1 : block_;
  cycle_ = {};
  cycle_.cold = cold;
  cycle_.block = block;
  const std::size_t count = candidates_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = (i + static_cast<std::size_t>(cycles_)) % count;
    if (candidates_[c].live) cycle_.order.push_back(c);
    candidates_[c].own_ms = 0;
    candidates_[c].own_calls = 0;
  }
  // The first call of a program is like no other: the ranks begin at different times.
  cycle_.first = cold ? 1 : next_multiple(block, next_);
  cycle_.calls = block * cycle_.order.size();
  cycle_.report_at = cycle_.first + cycle_.calls + block;
  cycle_.await_at = cycle_.report_at + block;
}

void AutoChoice::begin_window() {
  cycle_ = {};
  cycle_.trial = false;
  cycle_.order = {best_};
  candidates_[best_].own_ms = 0;
  candidates_[best_].own_calls = 0;
  cycle_.first = next_multiple(block_, next_);
  cycle_.calls = next_multiple(block_, window_);
  cycle_.block = cycle_.calls;
  cycle_.report_at = cycle_.first + cycle_.calls + block_;
  cycle_.await_at = cycle_.report_at + block_;
}

void AutoChoice::take_window(double mean_ms) {
  if (reference_ms_ == 0) reference_ms_ = mean_ms;
  if (mean_ms > rules_.drift * reference_ms_ || mean_ms * rules_.drift < reference_ms_) {
    window_ = std::min(window_ * 2, rules_.most_window);
    drifted_ = true;
  }
  begin_window();
}

void AutoChoice::decide() {
  const auto fast = fastest();
  if (fast) {
    const Candidate& before = candidates_[incumbent_];
    const bool stays = before.live && before.count > 0 &&
                       before.mean() <= (1 + rules_.keep) * candidates_[*fast].mean();
    best_ = stays ? incumbent_ : *fast;
  }
  decided_ = true;
  ++decisions_;
  reference_ms_ = fast ? candidates_[best_].mean() : 0;
  begin_window();
}

std::optional<double> AutoChoice::mean_ms(std::size_t candidate) const {
  const Candidate& one = candidates_[candidate];
  if (one.count == 0) return std::nullopt;
  return one.mean();
}

}  // namespace thalweg::proto
