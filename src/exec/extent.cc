#include "exec/extent.h"

#include <bit>

#include "base/check.h"

namespace thalweg::exec {

void RunSet::add(Run run) {
  if (run.empty()) return;
  count_ += run.size();
  const std::size_t words = (run.end - 1) / kWordBits + 1;
  if (words_.size() < words) words_.resize(words);
  for (std::size_t unit = run.begin; unit < run.end;) {
    std::uint64_t& word = words_[unit / kWordBits];
    const std::size_t end = std::min(run.end, (unit / kWordBits + 1) * kWordBits);
    const std::uint64_t mask = (~std::uint64_t{0} >> (kWordBits - (end - unit)))
                               << (unit % kWordBits);
    CHECK((word & mask) == 0);
    word |= mask;
    unit = end;
  }
}

std::size_t RunSet::first(Run run, bool inside) const {
  for (std::size_t unit = run.begin; unit < run.end;) {
    const std::size_t index = unit / kWordBits;
    if (index >= words_.size()) return inside ? run.end : unit;
    const std::uint64_t wanted = (inside ? words_[index] : ~words_[index]) >> (unit % kWordBits);
    if (wanted != 0) {
      return std::min(run.end, unit + static_cast<std::size_t>(std::countr_zero(wanted)));
    }
    unit = (index + 1) * kWordBits;
  }
  return run.end;
}

}  // namespace thalweg::exec
