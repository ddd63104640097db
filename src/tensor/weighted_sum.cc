#include "tensor/weighted_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/weighted_sum.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/prng.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

// Sums whole vectors, and sets `done` to the number of their elements. The products of even and odd
// places are twice as wide as the elements.
template <class D>
HWY_INLINE std::uint64_t sum_of_vectors(D d, const std::int32_t* weights, const std::byte* elements,
                                        std::size_t count, std::size_t& done) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return 0;
  } else {
    const hn::RepartitionToWide<D> wide;
    const auto odd_of = [&](hn::VFromD<D> v) HWY_ATTR {
      return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, v)));
    };
    auto even = hn::Zero(wide);
    auto odd = hn::Zero(wide);
    const std::size_t step = hn::Lanes(d);
    for (; count - done >= step; done += step) {
      const auto x = hn::LoadU(
          d, reinterpret_cast<const std::int32_t*>(elements + done * sizeof(std::int32_t)));
      const auto w = hn::LoadU(d, weights + done);
      even = hn::Add(even, hn::MulEven(x, w));
      odd = hn::Add(odd, hn::MulEven(odd_of(x), odd_of(w)));
    }
    return static_cast<std::uint64_t>(hn::GetLane(hn::SumOfLanes(wide, hn::Add(even, odd))));
  }
}

std::uint64_t sum_on_target(const std::int32_t* weights, const std::byte* elements,
                            std::size_t count) {
  std::size_t i = 0;
  std::uint64_t sum = sum_of_vectors(hn::ScalableTag<std::int32_t>(), weights, elements, count, i);
  for (; i < count; ++i) {
    std::int32_t x = 0;
    std::memcpy(&x, elements + i * sizeof(x), sizeof(x));
    sum += static_cast<std::uint64_t>(std::int64_t{x} * weights[i]);
  }
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {

namespace {

HWY_EXPORT(sum_on_target);

constexpr std::array<std::int32_t, kMostWeighted> make_weights() {
  std::array<std::int32_t, kMostWeighted> weights{};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::int32_t>((mix_bits(i + 1) & 0x7fff'ffff) | 1);
  }
  return weights;
}
constexpr std::array<std::int32_t, kMostWeighted> kWeights = make_weights();

}  // namespace

std::int32_t weight_of(std::size_t place) { return kWeights[place]; }

std::uint64_t weighted_sum(const std::byte* elements, std::size_t count) {
  CHECK(count <= kMostWeighted);
  return HWY_DYNAMIC_DISPATCH(sum_on_target)(kWeights.data(), elements, count);
}

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
