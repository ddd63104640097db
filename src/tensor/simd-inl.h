// Building blocks of the kernels, compiled once for every SIMD target (by Highway's
// foreach_target, which is why the include guard toggles). A lane here is one element of a SIMD
// vector.
//
// A kernel is an object that is called with a vector tag and one vector per input; for_each_vector
// runs it over arrays. A format describes a float type: its lanes as integers, and the bit patterns
// that need care.
#if defined(THALWEG_TENSOR_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef THALWEG_TENSOR_SIMD_INL_H
#undef THALWEG_TENSOR_SIMD_INL_H
#else
#define THALWEG_TENSOR_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// dst[i] = kernel(in[i]...) for i < count lanes of type T. An input may be dst itself, since every
// vector is read before it is written.
//
// The loop is plain on purpose: beyond the cache, unrolling measured no gain and software
// prefetching a loss.
template <class T, class Kernel, class... Input>
HWY_INLINE void for_each_vector(const Kernel& kernel, std::size_t count, std::byte* dst,
                                const Input*... in) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d) * sizeof(T);
  const std::size_t size = count * sizeof(T);
  std::size_t at = 0;
  for (; size - at >= step; at += step) {
    const auto result = kernel(d, hn::LoadU(d, reinterpret_cast<const T*>(in + at))...);
    hn::StoreU(result, d, reinterpret_cast<T*>(dst + at));
  }
  if (at == size) return;
  // The rest goes through padded copies and the same kernel, so that a lane's result does not
  // depend on where in the array it is.
  const auto load_rest = [&](const std::byte* from) HWY_ATTR {
    HWY_ALIGN T padded[hn::MaxLanes(d)] = {};
    std::memcpy(padded, from + at, size - at);
    return hn::Load(d, padded);
  };
  HWY_ALIGN T results[hn::MaxLanes(d)];
  hn::Store(kernel(d, load_rest(in)...), d, results);
  std::memcpy(dst + at, results, size - at);
}

// Applies `op`, a function of wide lanes, to vectors of lanes half as wide. The even and the odd
// lanes are zero-extended in place, separately, and the results are put together again. `op` must
// return lanes that fit the narrow width.
template <class D, class Op, class... V>
HWY_INLINE hn::VFromD<D> through_wide_lanes(D d, const Op& op, V... v) {
  const hn::RepartitionToWide<D> wide;
  using Narrow = hn::TFromD<D>;
  using Wide = hn::TFromD<decltype(wide)>;
  if constexpr (hn::MaxLanes(d) == 1) {
    const auto result = op(wide, hn::Set(wide, Wide{hn::GetLane(v)})...);
    return hn::Set(d, static_cast<Narrow>(hn::GetLane(result)));
  } else {
    constexpr int kBits = sizeof(Narrow) * 8;
    const auto low = hn::Set(wide, Wide{hwy::LimitsMax<Narrow>()});
    const auto even = op(wide, hn::And(hn::BitCast(wide, v), low)...);
    const auto odd = op(wide, hn::ShiftRight<kBits>(hn::BitCast(wide, v))...);
    return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<kBits>(odd)));
  }
}

struct Float32 {
  using Lane = float;
  using Bits = std::int32_t;
  static constexpr Bits kInfinity = 0x7f800000;
  static constexpr Bits kNan = 0x7fc00000;
};

struct Float64 {
  using Lane = double;
  using Bits = std::int64_t;
  static constexpr Bits kInfinity = 0x7ff0000000000000;
  static constexpr Bits kNan = 0x7ff8000000000000;
};

template <class Format, class D, class V>
HWY_INLINE V canonical_nan(D d, V v) {
  const auto nan = hn::BitCast(d, hn::Set(hn::RebindToSigned<D>(), Format::kNan));
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

// The 16-bit formats convert between bits in the low half of a 32-bit lane and float32, and the
// 8-bit ones (float8-inl.h) likewise with the lowest quarter. encode() rounds to nearest even, and
// requires that every NaN is the canonical one.

struct BFloat16 {
  using Bits = std::int16_t;
  static constexpr Bits kInfinity = 0x7f80;
  static constexpr Bits kNan = 0x7fc0;

  template <class D32, class V>
  static HWY_INLINE auto decode(D32 /*d*/, V bits) {
    return hn::BitCast(hn::RebindToFloat<D32>(), hn::ShiftLeft<16>(bits));
  }

  // Adds just under half a unit, or half a unit if the last bit kept is odd, so that a carry occurs
  // exactly where rounding goes up; the carry out of the largest number gives infinity.
  template <class D32, class V>
  static HWY_INLINE auto encode(D32 d, V value) {
    const auto bits = hn::BitCast(d, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    return hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd));
  }
};

// Float16 in plain integer operations, for targets without conversion instructions. (Highway's
// replacement for those instructions truncates, and does not support infinity.)
struct Float16 {
  using Bits = std::int16_t;
  static constexpr Bits kInfinity = 0x7c00;
  static constexpr Bits kNan = 0x7e00;

  // The exponent field, moved to its place in a float32, is too small by the difference of the
  // biases, 112; by twice that if it was all ones (infinity, NaN). A subnormal gets an exponent
  // that gives its last bit the right value, and the implicit one bit of that exponent is
  // subtracted again.
  template <class D32, class V>
  static HWY_INLINE auto decode(D32 d, V bits) {
    const hn::RebindToFloat<D32> df;
    const auto rebias = hn::Set(d, 112U << 23);
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d, 0x7fff)));
    const auto exponent = hn::And(magnitude, hn::Set(d, 0x1fU << 23));
    const auto normal = hn::Add(magnitude, rebias);
    const auto special = hn::Add(normal, rebias);
    const auto one = hn::Set(d, 113U << 23);
    const auto subnormal =
        hn::BitCast(d, hn::Sub(hn::BitCast(df, hn::Add(magnitude, one)), hn::BitCast(df, one)));
    auto result = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, 0x1fU << 23)), special, normal);
    result = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), subnormal, result);
    return hn::BitCast(df, hn::Or(result, sign(d, hn::ShiftLeft<16>(bits))));
  }

  // For a subnormal result, adding a power of two whose last bit has the value of a subnormal's
  // last bit makes the float32 adder round. Other numbers are rounded as in BFloat16. Numbers from
  // 2^16 up become infinity, and a NaN stays a NaN.
  template <class D32, class V>
  static HWY_INLINE auto encode(D32 d, V value) {
    const hn::RebindToFloat<D32> df;
    const auto bits = hn::BitCast(d, value);
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const auto power = hn::Set(d, 126U << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, power))), power);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const auto rebias = hn::Set(d, 0xfffU - (112U << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias), odd));
    const auto special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000)), hn::Set(d, kNan),
                                        hn::Set(d, kInfinity));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 143U << 23)), normal, special);
    result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 113U << 23)), subnormal, result);
    return hn::Or(result, hn::ShiftRight<16>(sign(d, bits)));
  }

 private:
  template <class D32, class V>
  static HWY_INLINE V sign(D32 d, V bits) {
    return hn::And(bits, hn::Set(d, 1U << 31));
  }
};

// Applies `op`, a function of float32 vectors, to vectors of 16-bit or 8-bit floats, given as bits.
template <class Format, class D, class Op, class... V>
HWY_INLINE hn::VFromD<D> through_float32(Format format, D d, const Op& op, V... v) {
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    const auto halves = [&](auto d16, auto... bits)
                            HWY_ATTR { return through_float32(format, d16, op, bits...); };
    return through_wide_lanes(d, halves, v...);
  } else {
    const auto step = [&](auto d32, auto... bits) HWY_ATTR {
      return Format::encode(d32,
                            op(hn::RebindToFloat<decltype(d32)>(), Format::decode(d32, bits)...));
    };
    return through_wide_lanes(d, step, v...);
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
template <class D, class Op, class... V>
HWY_INLINE hn::VFromD<D> through_float32(Float16 /*format*/, D d, const Op& op, V... v) {
  const hn::Half<D> dh;
  const hn::RebindToFloat<hn::RepartitionToWide<D>> df;
  const hn::Rebind<hwy::float16_t, decltype(df)> df16;
  const auto low = op(df, hn::PromoteTo(df, hn::BitCast(df16, hn::LowerHalf(dh, v)))...);
  const auto high = op(df, hn::PromoteTo(df, hn::BitCast(df16, hn::UpperHalf(dh, v)))...);
  return hn::Combine(d, hn::BitCast(dh, hn::DemoteTo(df16, high)),
                     hn::BitCast(dh, hn::DemoteTo(df16, low)));
}
#endif

// Makes a function of float32 vectors a kernel over a 16-bit or 8-bit format.
template <class Format, class Op>
struct Widened {
  Op op;

  template <class D, class... V>
  HWY_INLINE hn::VFromD<D> operator()(D d, V... v) const {
    const auto wide_op = [&](auto df, auto... wide)
                             HWY_ATTR { return canonical_nan<Float32>(df, op(df, wide...)); };
    return through_float32(Format(), d, wide_op, v...);
  }
};

// Makes a function of float vectors a kernel over the same floats, whose NaNs are canonical.
template <class Format, class Op>
struct Canonical {
  Op op;

  template <class D, class... V>
  HWY_INLINE hn::VFromD<D> operator()(D d, V... v) const {
    return canonical_nan<Format>(d, op(d, v...));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#endif  // THALWEG_TENSOR_SIMD_INL_H
