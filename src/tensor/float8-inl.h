// The 8-bit float formats of PyTorch, float8_e4m3fn and float8_e5m2, for the kernels (simd-inl.h).
#if defined(THALWEG_TENSOR_FLOAT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef THALWEG_TENSOR_FLOAT8_INL_H
#undef THALWEG_TENSOR_FLOAT8_INL_H
#else
#define THALWEG_TENSOR_FLOAT8_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Conversions between bits in the lowest quarter of a 32-bit lane and float32, in plain integer
// operations, as Float16 has them. They work on signed lanes, which x86 compares faster. `Format`
// says:
//
//   kMantissaBits, kExponentBias
//   kOverflow    the bits of a float32: larger numbers become what this one does
//   kSpecial     the least magnitude that is no finite number
//   kNan         the canonical NaN
template <class Format>
struct Float8Conversion {
  // Both fields, moved to their place in a float32, have an exponent that is too small by the
  // difference of the biases. A subnormal gets an exponent that gives its last bit the right value,
  // and the implicit one bit of that exponent is subtracted again. Infinity and NaN are the largest
  // magnitudes, and become float32's by setting all bits of the exponent.
  template <class D32, class V>
  static HWY_INLINE auto decode(D32 d, V bits) {
    const hn::RebindToFloat<D32> df;
    const hn::RebindToSigned<D32> di;
    const auto low = hn::BitCast(di, bits);
    const auto magnitude = hn::ShiftLeft<kShift>(hn::And(low, hn::Set(di, 0x7f)));
    const auto normal = hn::Add(magnitude, hn::Set(di, kRebias << 23));
    const auto one = hn::Set(di, (kRebias + 1) << 23);
    const auto subnormal =
        hn::BitCast(di, hn::Sub(hn::BitCast(df, hn::Add(magnitude, one)), hn::BitCast(df, one)));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << 23)), subnormal, normal);
    const auto special = hn::Or(result, hn::Set(di, 0xff << 23));
    const auto least_special = hn::Set(di, std::int32_t{Format::kSpecial} << kShift);
    result = hn::IfThenElse(hn::Lt(magnitude, least_special), result, special);
    const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(d, 0x80)));
    return hn::BitCast(df, hn::Or(hn::BitCast(d, result), sign));
  }

  // For a subnormal result, adding a power of two whose last bit has the value of a subnormal's
  // last bit makes the float32 adder round. For other numbers, adding just under half a unit, or
  // half a unit if the last bit kept is odd, carries exactly where rounding goes up.
  template <class D32, class V>
  static HWY_INLINE auto encode(D32 d, V value) {
    const hn::RebindToFloat<D32> df;
    const hn::RebindToSigned<D32> di;
    const auto bits = hn::BitCast(d, value);
    const auto whole = hn::BitCast(di, hn::And(bits, hn::Set(d, 0x7fffffff)));
    const auto magnitude = hn::Min(whole, hn::Set(di, Format::kOverflow));
    const auto power = hn::Set(di, (kRebias + 1 + kShift) << 23);
    const auto subnormal = hn::Sub(
        hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, power))), power);
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
    const auto rebias = hn::Set(di, (1 << (kShift - 1)) - 1 - (kRebias << 23));
    const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, rebias), odd));
    auto result =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, (kRebias + 1) << 23)), subnormal, normal);
    const auto is_nan = hn::Gt(whole, hn::Set(di, 0x7f800000));
    result = hn::IfThenElse(is_nan, hn::Set(di, std::int32_t{Format::kNan}), result);
    return hn::Or(hn::BitCast(d, result), hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80)));
  }

 private:
  static constexpr int kShift = 23 - Format::kMantissaBits;
  static constexpr std::int32_t kRebias = 127 - Format::kExponentBias;
};

// The parts of e4m3fn, which has no infinity and one NaN of each sign. All other bits are numbers,
// up to 448. 480 would be the next; what is larger than 448 becomes 448, as in PyTorch 2.13. (Older
// versions gave NaN.)
struct E4m3fnParts {
  static constexpr int kMantissaBits = 3;
  static constexpr int kExponentBias = 7;
  static constexpr std::int32_t kOverflow = 0x43e00000;  // 448
  static constexpr std::uint8_t kSpecial = 0x7f;
  static constexpr std::uint8_t kNan = 0x7f;
};

// The parts of e5m2, which is a float16 without its last eight bits.
struct E5m2Parts {
  static constexpr int kMantissaBits = 2;
  static constexpr int kExponentBias = 15;
  static constexpr std::int32_t kOverflow = 0x47800000;  // 65,536, which becomes infinity
  static constexpr std::uint8_t kSpecial = 0x7c;
  static constexpr std::uint8_t kNan = 0x7f;
};

// kInfinity is the largest magnitude that is not NaN.
struct Float8E4m3fn : Float8Conversion<E4m3fnParts> {
  using Bits = std::int8_t;
  static constexpr Bits kInfinity = 0x7e;
  static constexpr Bits kNan = 0x7f;
};

struct Float8E5m2 : Float8Conversion<E5m2Parts> {
  using Bits = std::int8_t;
  static constexpr Bits kInfinity = 0x7c;
  static constexpr Bits kNan = 0x7f;
};

}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#endif  // THALWEG_TENSOR_FLOAT8_INL_H
