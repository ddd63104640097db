#include "tensor/magnitude.h"

#include <algorithm>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/magnitude.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/float8-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

// Vectors of floats that have the same width in memory and in arithmetic.
template <class T>
struct SameWidth {
  using Lane = T;
  using Sum = T;

  template <class D, class V>
  static HWY_INLINE auto add(D /*d*/, V sum, V v) {
    return hn::Add(sum, hn::Abs(v));
  }
};

// Vectors of 16-bit floats, as bits, summed in float32, one half of the vector after the other.
template <class Format>
struct Narrow {
  using Lane = std::uint16_t;
  using Sum = float;

  template <class D, class S, class V>
  static HWY_INLINE S add(D d, S sum, V v) {
    const hn::RepartitionToWide<D> wide;
    if constexpr (hn::MaxLanes(d) == 1) {
      const auto bits = hn::Set(wide, std::uint32_t{hn::GetLane(v)});
      return hn::Add(sum, hn::Abs(Format::decode(wide, bits)));
    } else {
      const auto bits = hn::BitCast(wide, v);
      const auto even = Format::decode(wide, hn::And(bits, hn::Set(wide, 0xffff)));
      const auto odd = Format::decode(wide, hn::ShiftRight<16>(bits));
      return hn::Add(hn::Add(sum, hn::Abs(even)), hn::Abs(odd));
    }
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
template <>
struct Narrow<Float16> {
  using Lane = std::uint16_t;
  using Sum = float;

  template <class D, class S, class V>
  static HWY_INLINE S add(D d, S sum, V v) {
    const hn::Half<D> half;
    const hn::RebindToFloat<hn::RepartitionToWide<D>> wide;
    const hn::Rebind<hwy::float16_t, decltype(wide)> narrow;
    const auto low = hn::PromoteTo(wide, hn::BitCast(narrow, hn::LowerHalf(half, v)));
    const auto high = hn::PromoteTo(wide, hn::BitCast(narrow, hn::UpperHalf(half, v)));
    return hn::Add(hn::Add(sum, hn::Abs(low)), hn::Abs(high));
  }
};
#endif

// Vectors of 8-bit floats, as bits, summed in float32, one quarter of the vector after the other.
template <class Format>
struct Narrowest {
  using Lane = std::uint8_t;
  using Sum = float;

  template <class D, class S, class V>
  static HWY_INLINE S add(D d, S sum, V v) {
    const hn::RepartitionToWide<hn::RepartitionToWide<D>> wide;
    if constexpr (hn::MaxLanes(d) == 1) {
      const auto bits = hn::Set(wide, std::uint32_t{hn::GetLane(v)});
      return hn::Add(sum, hn::Abs(Format::decode(wide, bits)));
    } else {
      const auto bits = hn::BitCast(wide, v);
      const auto low = hn::Set(wide, 0xff);
      const auto magnitude = [&](auto quarter) HWY_ATTR {
        return hn::Abs(Format::decode(wide, hn::And(quarter, low)));
      };
      const auto first = hn::Add(magnitude(bits), magnitude(hn::ShiftRight<8>(bits)));
      const auto second =
          hn::Add(magnitude(hn::ShiftRight<16>(bits)), magnitude(hn::ShiftRight<24>(bits)));
      return hn::Add(sum, hn::Add(first, second));
    }
  }
};

// Keeps four independent sums to hide the latency of the additions. Loads may be unaligned.
template <class Width>
HWY_INLINE double sum_of_magnitudes(const std::byte* data, std::size_t count) {
  using Lane = typename Width::Lane;
  const hn::ScalableTag<Lane> d;
  const hn::ScalableTag<typename Width::Sum> ds;
  const std::size_t lanes = hn::Lanes(d);
  const auto load = [&](std::size_t at) HWY_ATTR {
    return hn::LoadU(d, reinterpret_cast<const Lane*>(data + at * sizeof(Lane)));
  };
  auto sum0 = hn::Zero(ds);
  auto sum1 = sum0;
  auto sum2 = sum0;
  auto sum3 = sum0;
  std::size_t at = 0;
  for (; at + 4 * lanes <= count; at += 4 * lanes) {
    sum0 = Width::add(d, sum0, load(at));
    sum1 = Width::add(d, sum1, load(at + lanes));
    sum2 = Width::add(d, sum2, load(at + 2 * lanes));
    sum3 = Width::add(d, sum3, load(at + 3 * lanes));
  }
  for (; at + lanes <= count; at += lanes) sum0 = Width::add(d, sum0, load(at));
  if (at < count) {
    HWY_ALIGN Lane padded[hn::MaxLanes(d)] = {};
    std::memcpy(padded, data + at * sizeof(Lane), (count - at) * sizeof(Lane));
    sum1 = Width::add(d, sum1, hn::Load(d, padded));
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(ds, sum)));
}

template <class Width>
void mean_stretches(const std::byte* data, std::size_t count, std::size_t stretch, double* out) {
  while (count > 0) {
    const std::size_t length = std::min(count, stretch);
    *out++ = sum_of_magnitudes<Width>(data, length) / static_cast<double>(length);
    data += length * sizeof(typename Width::Lane);
    count -= length;
  }
}

void mean_magnitudes_on_target(DType type, const std::byte* data, std::size_t count,
                               std::size_t stretch, double* out) {
  switch (type) {
    case DType::kFloat32:
      return mean_stretches<SameWidth<float>>(data, count, stretch, out);
    case DType::kFloat64:
      return mean_stretches<SameWidth<double>>(data, count, stretch, out);
    case DType::kFloat16:
      return mean_stretches<Narrow<Float16>>(data, count, stretch, out);
    case DType::kBFloat16:
      return mean_stretches<Narrow<BFloat16>>(data, count, stretch, out);
    case DType::kFloat8E4m3fn:
      return mean_stretches<Narrowest<Float8E4m3fn>>(data, count, stretch, out);
    case DType::kFloat8E5m2:
      return mean_stretches<Narrowest<Float8E5m2>>(data, count, stretch, out);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      break;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {
namespace {

HWY_EXPORT(mean_magnitudes_on_target);

}  // namespace

void mean_magnitudes(DType type, const void* data, std::size_t count, std::size_t stretch,
                     double* out) {
  CHECK(is_floating(type) && stretch > 0, "magnitudes of {}, {} at a time", name_of(type), stretch);
  HWY_DYNAMIC_DISPATCH(mean_magnitudes_on_target)
  (type, static_cast<const std::byte*>(data), count, stretch, out);
}

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
