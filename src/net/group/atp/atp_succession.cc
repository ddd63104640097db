#include "net/group/atp/atp_succession.h"

#include <algorithm>

namespace thalweg::net {

std::uint64_t AtpSuccession::call(std::int64_t elements) {
  const std::int64_t begin = calls_.empty() ? 0 : calls_.back().end;
  calls_.push_back({.begin = begin, .end = begin + elements});
  return first_ + calls_.size() - 1;
}

// A rank begins an operation only when all that it sees are over there. So once an operation is
// whole that sees the last one of the old job, all ranks have ended the old job.
void AtpSuccession::over(std::uint64_t number, std::optional<std::uint32_t> told, bool whole) {
  Called& call = at(number);
  call.over = true;
  call.told = told.value_or(0);
  if (settled_ || !whole || number < changed_at_) return;
  settled_ = sees(number, changed_at_ - 1, changed_begin_);
}

std::optional<std::uint32_t> AtpSuccession::next() {
  if (next_ == first_ + calls_.size()) return std::nullopt;
  for (; seen_ < next_ && sees(next_, seen_, at(seen_).end); ++seen_) {
    if (!at(seen_).over) return std::nullopt;
    told_ = std::max(told_, at(seen_).told);
  }
  if (told_ > job_) {
    job_ = told_;
    changed_at_ = next_;
    changed_begin_ = at(next_).begin;
    settled_ = false;
  }
  ++next_;
  // The last call stays: the next one begins at its end.
  for (; first_ < seen_ && calls_.size() > 1; ++first_) calls_.pop_front();
  return job_;
}

}  // namespace thalweg::net
