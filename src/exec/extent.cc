#include "exec/extent.h"

#include "base/check.h"

namespace thalweg::exec {

std::size_t RunSet::first_behind(std::size_t unit) const {
  const auto place = std::ranges::upper_bound(runs_, unit, {}, &Run::end);
  return static_cast<std::size_t>(place - runs_.begin());
}

void RunSet::add(Run run) {
  if (run.empty()) return;
  count_ += run.size();
  const std::size_t at = first_behind(run.begin);
  CHECK(at == runs_.size() || runs_[at].begin >= run.end);
  const bool joins_last = at > 0 && runs_[at - 1].end == run.begin;
  const bool joins_next = at < runs_.size() && runs_[at].begin == run.end;
  const auto place = runs_.begin() + static_cast<std::ptrdiff_t>(at);
  if (joins_last && joins_next) {
    runs_[at - 1].end = runs_[at].end;
    runs_.erase(place);
  } else if (joins_last) {
    runs_[at - 1].end = run.end;
  } else if (joins_next) {
    runs_[at].begin = run.begin;
  } else {
    runs_.insert(place, run);
  }
}

}  // namespace thalweg::exec
