// A reference implementation of the reductions, one element at a time and in the most obvious way;
// tests compare the kernels with it. An element is its bit pattern in the low bits of a uint64.
#pragma once

#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <thalweg/types.h>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::tensor::reference {

// The parts of a floating-point format.
struct FloatFormat {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity = true;
  bool full_nan = false;  // all bits of the canonical NaN's mantissa are set

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] std::uint64_t sign() const {
    return std::uint64_t{1} << (mantissa_bits + exponent_bits);
  }
  // Infinity. In a format without it, the only NaN, where infinity would follow the numbers.
  [[nodiscard]] std::uint64_t infinity() const {
    return has_infinity ? ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits : sign() - 1;
  }
  // What becomes of numbers that are too large.
  [[nodiscard]] std::uint64_t overflow() const {
    return has_infinity ? infinity() : infinity() - 1;
  }
  [[nodiscard]] std::uint64_t canonical_nan() const {
    return full_nan ? sign() - 1 : infinity() | std::uint64_t{1} << (mantissa_bits - 1);
  }
};

inline constexpr FloatFormat kFloat16{10, 5};
inline constexpr FloatFormat kBFloat16{7, 8};
inline constexpr FloatFormat kFloat32{23, 8};
inline constexpr FloatFormat kFloat64{52, 11};
inline constexpr FloatFormat kFloat8E4m3fn{3, 4, false, true};
inline constexpr FloatFormat kFloat8E5m2{2, 5, true, true};

inline bool is_float(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat64 || type == DType::kFloat16 ||
         type == DType::kBFloat16 || type == DType::kFloat8E4m3fn || type == DType::kFloat8E5m2;
}

inline FloatFormat format_of(DType type) {
  switch (type) {
    case DType::kFloat16:
      return kFloat16;
    case DType::kBFloat16:
      return kBFloat16;
    case DType::kFloat32:
      return kFloat32;
    case DType::kFloat8E4m3fn:
      return kFloat8E4m3fn;
    case DType::kFloat8E5m2:
      return kFloat8E5m2;
    default:
      CHECK(type == DType::kFloat64);
      return kFloat64;
  }
}

inline double decode(FloatFormat format, std::uint64_t bits) {
  const double sign = (bits & format.sign()) != 0 ? -1 : 1;
  const std::uint64_t magnitude = bits & (format.sign() - 1);
  if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.infinity() && !format.has_infinity) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const std::uint64_t one = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t fraction = magnitude & (one - 1);
  const std::uint64_t mantissa = exponent == 0 ? fraction : one + fraction;
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(mantissa), scale);
}

// Rounds to nearest even, to a multiple of the unit of the magnitude's exponent in the format.
inline std::uint64_t encode(FloatFormat format, double value) {
  if (std::isnan(value)) return format.canonical_nan();
  const std::uint64_t sign = std::signbit(value) ? format.sign() : 0;
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | format.overflow();
  const int lowest = 1 - format.bias();
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // Counting units from the lowest exponent up makes carries correct.
  const auto base = static_cast<std::uint64_t>(exponent - lowest) << format.mantissa_bits;
  const std::uint64_t result = base + static_cast<std::uint64_t>(units);
  return sign | std::min(result, format.overflow());
}

inline double extreme(ReduceOp op, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  const bool a_below = a < b || (a == b && std::signbit(a));
  return a_below == (op == ReduceOp::kMin) ? a : b;
}

// Real is the type in which it computes.
template <class Real>
std::uint64_t reduce_floats(FloatFormat format, ReduceOp op, std::uint64_t a, std::uint64_t b) {
  const auto x = static_cast<Real>(decode(format, a));
  const auto y = static_cast<Real>(decode(format, b));
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return encode(format, static_cast<Real>(x + y));
    case ReduceOp::kProduct:
      return encode(format, static_cast<Real>(x * y));
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return encode(format, extreme(op, x, y));
  }
  return 0;
}

inline std::uint64_t mask_of(DType type) { return ~std::uint64_t{0} >> (64 - 8 * size_of(type)); }

inline std::int64_t sign_extend(DType type, std::uint64_t bits) {
  const auto unused = static_cast<int>(64 - 8 * size_of(type));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

inline std::uint64_t reduce(DType type, ReduceOp op, std::uint64_t a, std::uint64_t b) {
  if (type == DType::kFloat64) return reduce_floats<double>(kFloat64, op, a, b);
  if (is_float(type)) return reduce_floats<float>(format_of(type), op, a, b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return (a + b) & mask_of(type);
    case ReduceOp::kProduct:
      return (a * b) & mask_of(type);
    case ReduceOp::kMin:
      return sign_extend(type, a) < sign_extend(type, b) ? a : b;
    case ReduceOp::kMax:
      return sign_extend(type, a) > sign_extend(type, b) ? a : b;
  }
  return 0;
}

inline std::uint64_t mean(DType type, std::uint64_t sum, std::int64_t contributions) {
  if (type == DType::kFloat64) {
    return encode(kFloat64, decode(kFloat64, sum) / static_cast<double>(contributions));
  }
  if (is_float(type)) {
    const auto value = static_cast<float>(decode(format_of(type), sum));
    return encode(format_of(type), value / static_cast<float>(contributions));
  }
  return static_cast<std::uint64_t>(sign_extend(type, sum) / contributions) & mask_of(type);
}

// Zeros, ones, the ends of every range, the neighbours of rounding boundaries, infinities, NaNs.
inline std::vector<std::uint64_t> special_values(DType type) {
  const std::uint64_t sign = (mask_of(type) >> 1) + 1;
  std::vector<std::uint64_t> values{0, 1, 2, 3, 0x55, 0x7f};
  if (is_float(type)) {
    const FloatFormat format = format_of(type);
    const std::uint64_t normal = std::uint64_t{1} << format.mantissa_bits;
    const std::uint64_t one = encode(format, 1);
    for (const std::uint64_t value :
         {normal - 1, normal, normal + 1, one - 1, one, one + 1, one + normal, one + normal + 1,
          encode(format, 1.5), encode(format, 16), format.infinity() - 1, format.infinity() - 2,
          format.infinity() - normal, format.infinity(), format.infinity() + 1,
          format.canonical_nan(), format.canonical_nan() + 5, sign - 1}) {
      values.push_back(value);
    }
  } else {
    values.insert(values.end(), {sign - 1, sign - 2, sign / 2, mask_of(type) / 3});
  }
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values[i] &= mask_of(type);
  for (std::size_t i = 0; i < positive; ++i) values.push_back(values[i] | sign);
  values.push_back(mask_of(type));
  return values;
}

// Random values: half of them special, half random bits.
inline std::vector<std::uint64_t> random_values(DType type, std::size_t count, Prng& prng) {
  const std::vector<std::uint64_t> special = special_values(type);
  std::vector<std::uint64_t> values(count);
  for (std::uint64_t& value : values) {
    value = prng.chance(0.5) ? special[static_cast<std::size_t>(prng.below(special.size()))]
                             : prng.next() & mask_of(type);
  }
  return values;
}

inline void store(DType type, std::byte* array, std::size_t i, std::uint64_t bits) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(array + i * size_of(type), &bits, size_of(type));
}

inline std::uint64_t load(DType type, const std::byte* array, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, array + i * size_of(type), size_of(type));
  return bits;
}

// An array that starts `shift` bytes past an aligned address, between bytes that must not change.
class GuardedArray {
 public:
  GuardedArray(DType type, const std::vector<std::uint64_t>& values, std::size_t shift)
      : type_(type),
        bytes_(values.size() * size_of(type)),
        begin_(kGuard + shift),
        memory_(begin_ + bytes_ + kGuard, kFill) {
    for (std::size_t i = 0; i < values.size(); ++i) store(type, data(), i, values[i]);
  }

  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] std::uint64_t operator[](std::size_t i) { return load(type_, data(), i); }
  [[nodiscard]] bool guards_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr std::byte kFill{0xa5};

  DType type_;
  std::size_t bytes_;
  std::size_t begin_;
  std::vector<std::byte> memory_;
};

// Runs `body` in turn with each instruction set that was compiled and that this machine has. The
// caller must check simd_target().
template <class Body>
void for_each_target(const Body& body) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (const std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline std::vector<DType> all_types() {
  std::vector<DType> types(kDTypeCount);
  for (std::size_t i = 0; i < types.size(); ++i) types[i] = static_cast<DType>(i);
  return types;
}

inline std::vector<ReduceOp> all_ops() {
  std::vector<ReduceOp> ops(kReduceOpCount);
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = static_cast<ReduceOp>(i);
  return ops;
}

}  // namespace thalweg::tensor::reference
