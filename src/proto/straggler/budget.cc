#include "proto/straggler/budget.h"

#include <algorithm>
#include <vector>

namespace thalweg::proto {
namespace {

constexpr std::size_t kMostTimes = 15;
constexpr std::size_t kLeastTimes = 5;

}  // namespace

// The fullest window that holds the call begins at the call or at one before it that left something
// out.
bool StragglerBudget::may_leave(std::uint64_t call, std::int64_t amount) const {
  const auto fits_from = [&](std::uint64_t first) {
    std::int64_t sum = amount;
    for (const auto& [number, left] : left_) {
      if (number >= first && number < first + window_) sum += left;
    }
    return static_cast<double>(sum) <= most_;
  };
  if (!fits_from(call)) return false;
  return std::ranges::all_of(left_, [&](const auto& entry) {
    const bool holds = entry.first <= call && call < entry.first + window_;
    return !holds || fits_from(entry.first);
  });
}

void StragglerBudget::leave(std::uint64_t call, std::int64_t amount) {
  if (amount == 0) return;
  const auto place =
      std::ranges::lower_bound(left_, call, {}, [](const auto& e) { return e.first; });
  if (place != left_.end() && place->first == call) {
    place->second += amount;
  } else {
    left_.insert(place, {call, amount});
  }
  while (left_.front().first + 2 * window_ < left_.back().first) left_.pop_front();
}

void StragglerPace::learn(Duration time) {
  last_.push_back(time);
  if (last_.size() > kMostTimes) last_.pop_front();
}

std::optional<Duration> StragglerPace::usual() const {
  if (last_.size() < kLeastTimes) return std::nullopt;
  std::vector<Duration> sorted(last_.begin(), last_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace thalweg::proto
