#include "ps/atp_sums.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::ps {

void AtpSums::begin(std::uint64_t elements, std::vector<tensor::BlockExponent> exponents) {
  const std::lock_guard lock(mutex_);
  CHECK(left_ == 0 && exponents.size() == (elements + block_ - 1) / block_);
  first_ = next_;
  left_ = exponents.size();
  next_ = first_ + left_;
  saturated_ = false;
  exponents_ = std::move(exponents);
  sum_.assign(elements, 0);
}

void AtpSums::on_sum(const wire::AtpHeader& header, const std::int32_t* sum) {
  std::vector<float> whole;
  bool saturated = false;
  {
    const std::lock_guard lock(mutex_);
    // The server completes each sequence once. A sequence outside this tensor can only be forged.
    if (left_ == 0 || header.sequence < first_ || header.sequence >= next_) return;
    const std::uint64_t index = header.sequence - first_;
    const std::uint64_t begin = index * block_;
    if (header.elements != std::min<std::uint64_t>(block_, sum_.size() - begin)) return;
    tensor::from_fixed_point(DType::kFloat32, sum, header.elements, block_,
                             std::span(exponents_).subspan(index, 1), workers_, &sum_[begin]);
    saturated_ |= header.saturated;
    if (--left_ > 0) return;
    whole = std::move(sum_);
    saturated = saturated_;
  }
  done_(std::move(whole), saturated);
}

}  // namespace thalweg::ps
