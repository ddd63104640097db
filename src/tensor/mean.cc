// finish_mean(): the division at the end of a mean.
//
// Integers are divided by multiplying (Granlund and Montgomery, "Division by invariant integers
// using multiplication", PLDI 1994). For magnitudes u <= 2^(N-1) and a divisor n in
// (2^(l-1), 2^l], let m = ceil(2^(N-1+l) / n) = (2^(N-1+l) + e) / n with e < n. Then
// u*m / 2^(N-1+l) exceeds u/n by u*e / (n * 2^(N-1+l)) < 1/n, too little to reach the next
// integer, and m < 2^N; so floor(u/n) is the high half of the product u*m, shifted by l-1.
#include <bit>
#include <concepts>
#include <limits>

#include "base/check.h"
#include "base/int128.h"
#include "tensor/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/mean.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/float8-inl.h"
#include "tensor/simd-inl.h"

#ifndef THALWEG_TENSOR_MEAN_ONCE
#define THALWEG_TENSOR_MEAN_ONCE
namespace thalweg::tensor {
namespace {

// The values m and l-1 of the comment above, for an N-bit integer type.
template <std::unsigned_integral Unsigned>
struct Reciprocal {
  static constexpr int kBits = std::numeric_limits<Unsigned>::digits;

  // Requires 2 <= divisor <= 2^(N-1). (With larger divisors every quotient is zero.)
  explicit Reciprocal(std::uint64_t divisor) {
    const int log = std::bit_width(divisor - 1);
    shift = log - 1;
    const UInt128 power = UInt128{1} << (kBits - 1 + log);
    multiplier = static_cast<Unsigned>((power + divisor - 1) / divisor);
  }

  Unsigned multiplier = 0;
  int shift = 0;
};

}  // namespace
}  // namespace thalweg::tensor
#endif  // THALWEG_TENSOR_MEAN_ONCE

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

struct DivideFloats {
  std::int64_t contributions;

  template <class D, class V>
  HWY_INLINE V operator()(D d, V v) const {
    return hn::Div(v, hn::Set(d, static_cast<hn::TFromD<D>>(contributions)));
  }
};

// The high halves of 64-bit products, put together from products of 32-bit halves.
template <class D, class V>
HWY_INLINE V multiply_high(D d, V a, V b) {
  if constexpr (hn::MaxLanes(d) == 1) {
    const auto product = static_cast<UInt128>(hn::GetLane(a)) * hn::GetLane(b);
    return hn::Set(d, static_cast<std::uint64_t>(product >> 64));
  } else {
    const auto multiply_low_halves = [](V x, V y) HWY_ATTR {
      const hn::RepartitionToNarrow<D> halves;
      return hn::MulEven(hn::BitCast(halves, x), hn::BitCast(halves, y));
    };
    const V a_high = hn::ShiftRight<32>(a);
    const V b_high = hn::ShiftRight<32>(b);
    const V low = multiply_low_halves(a, b);
    const V cross = multiply_low_halves(a, b_high);
    const V other_cross = multiply_low_halves(a_high, b);
    const V high = multiply_low_halves(a_high, b_high);
    // At most (2^32 - 1)^2 + 2 * (2^32 - 1) = 2^64 - 1.
    const V middle = hn::Add(hn::Add(hn::ShiftRight<32>(low), other_cross),
                             hn::And(cross, hn::Set(d, 0xffffffff)));
    return hn::Add(hn::Add(high, hn::ShiftRight<32>(cross)), hn::ShiftRight<32>(middle));
  }
}

template <class Unsigned>
struct DivideIntegers {
  Reciprocal<Unsigned> reciprocal;

  template <class D, class V>
  HWY_INLINE V operator()(D d, V v) const {
    const hn::RebindToUnsigned<D> du;
    const V sign = hn::BroadcastSignBit(v);
    const auto magnitude = hn::BitCast(du, hn::Sub(hn::Xor(v, sign), sign));
    const V quotient = hn::BitCast(d, divide(du, magnitude));
    return hn::Sub(hn::Xor(quotient, sign), sign);
  }

 private:
  template <class D, class V>
  HWY_INLINE V divide(D d, V magnitude) const {
    if constexpr (sizeof(Unsigned) == 8) {
      const V high = multiply_high(d, magnitude, hn::Set(d, reciprocal.multiplier));
      return hn::ShiftRightSame(high, reciprocal.shift);
    } else {
      const auto divide_wide = [&](auto wide, auto numerator) HWY_ATTR {
        const auto product = hn::Mul(numerator, hn::Set(wide, reciprocal.multiplier));
        return hn::ShiftRightSame(product, Reciprocal<Unsigned>::kBits + reciprocal.shift);
      };
      return through_wide_lanes(d, divide_wide, magnitude);
    }
  }
};

template <class Lane>
void divide_integers(std::byte* data, std::size_t count, std::int64_t contributions) {
  using Unsigned = hwy::MakeUnsigned<Lane>;
  const Reciprocal<Unsigned> reciprocal(static_cast<std::uint64_t>(contributions));
  for_each_vector<Lane>(DivideIntegers<Unsigned>{reciprocal}, count, data, data);
}

void finish_mean_on_target(DType type, std::byte* data, std::size_t count,
                           std::int64_t contributions) {
  const DivideFloats divide{contributions};
  switch (type) {
    case DType::kFloat32:
      return for_each_vector<float>(Canonical<Float32, DivideFloats>{divide}, count, data, data);
    case DType::kFloat64:
      return for_each_vector<double>(Canonical<Float64, DivideFloats>{divide}, count, data, data);
    case DType::kFloat16:
      return for_each_vector<std::uint16_t>(Widened<Float16, DivideFloats>{divide}, count, data,
                                            data);
    case DType::kBFloat16:
      return for_each_vector<std::uint16_t>(Widened<BFloat16, DivideFloats>{divide}, count, data,
                                            data);
    case DType::kInt8:
      return divide_integers<std::int8_t>(data, count, contributions);
    case DType::kInt16:
      return divide_integers<std::int16_t>(data, count, contributions);
    case DType::kInt32:
      return divide_integers<std::int32_t>(data, count, contributions);
    case DType::kInt64:
      return divide_integers<std::int64_t>(data, count, contributions);
    case DType::kFloat8E4m3fn:
      return for_each_vector<std::uint8_t>(Widened<Float8E4m3fn, DivideFloats>{divide}, count, data,
                                           data);
    case DType::kFloat8E5m2:
      return for_each_vector<std::uint8_t>(Widened<Float8E5m2, DivideFloats>{divide}, count, data,
                                           data);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {
namespace {

HWY_EXPORT(finish_mean_on_target);

}  // namespace

void finish_mean(DType type, void* data, std::size_t count, std::int64_t contributions) {
  CHECK(contributions > 0, "a mean of {} contributions", contributions);
  if (count == 0) return;
  if (!is_floating(type)) {
    if (contributions == 1) return;
    const std::size_t bits = size_of(type) * 8;
    if (static_cast<std::uint64_t>(contributions) > std::uint64_t{1} << (bits - 1)) {
      std::memset(data, 0, count * size_of(type));
      return;
    }
  }
  HWY_DYNAMIC_DISPATCH(finish_mean_on_target)
  (type, static_cast<std::byte*>(data), count, contributions);
}

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
