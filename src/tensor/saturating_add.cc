#include "tensor/saturating_add.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/saturating_add.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

// Notes in `overflow`, in the sign bit of each lane, sums whose sign differs from both terms'.
template <class Vector>
struct SaturatingSum {
  Vector& overflow;

  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V sum = hn::Add(a, b);
    const V wrapped = hn::And(hn::Xor(sum, a), hn::Xor(sum, b));
    overflow = hn::Or(overflow, wrapped);
    const V end = hn::Xor(hn::BroadcastSignBit(a), hn::Set(d, hwy::LimitsMax<std::int32_t>()));
    return hn::IfThenElse(hn::MaskFromVec(hn::BroadcastSignBit(wrapped)), end, sum);
  }
};

bool add_on_target(std::int32_t* dst, const std::byte* b, std::size_t count) {
  const hn::ScalableTag<std::int32_t> d;
  using Vector = hn::VFromD<decltype(d)>;
  Vector overflow = hn::Zero(d);
  auto* bytes = reinterpret_cast<std::byte*>(dst);
  for_each_vector<std::int32_t>(SaturatingSum<Vector>{overflow}, count, bytes, bytes, b);
  return !hn::AllFalse(d, hn::Lt(overflow, hn::Zero(d)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {

namespace {

HWY_EXPORT(add_on_target);

}  // namespace

bool add_saturating(std::int32_t* dst, const std::byte* b, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(add_on_target)(dst, b, count);
}

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
