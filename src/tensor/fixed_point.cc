#include "tensor/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/fixed_point.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/simd-inl.h"

#ifndef THALWEG_TENSOR_FIXED_POINT_ONCE
#define THALWEG_TENSOR_FIXED_POINT_ONCE
namespace thalweg::tensor {
namespace {

constexpr int kIntegerBits = 31;

constexpr int log2_up(int contributions) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(contributions) - 1));
}

// Requires that the result is a normal float32.
constexpr float power_of_two(int exponent) { return std::bit_cast<float>((exponent + 127) << 23); }

// The values that all elements of a block share.
struct BlockScale {
  BlockScale(BlockExponent exponent, int contributions) : finite(exponent != kNotFinite) {
    const int power = kIntegerBits - log2_up(contributions);
    limit = power_of_two(power);
    largest = limit - std::max(1.0F, power_of_two(power - 24));
    if (!finite) return;
    factor = power_of_two(power - exponent);
    quantum = power_of_two(exponent - power);
  }

  bool finite;
  float limit;    // elements of the block, as integers, stay below this
  float largest;  // elements are clamped to this: the largest integer below limit in float32
  float factor = 0;
  float quantum = 0;
};

// The blocks of a tensor, with their exponents.
struct Blocks {
  std::size_t count;  // elements
  std::size_t block;
  const BlockExponent* exponents;
  int contributions;

  // Calls call(scale, first element, elements) for every block.
  template <class Call>
  void for_each(const Call& call) const {
    for (std::size_t at = 0, i = 0; at < count; at += block, ++i) {
      call(BlockScale(exponents[i], contributions), at, std::min(block, count - at));
    }
  }
};

// The kernels for one element type.
struct Kernels {
  void (*exponents)(const std::byte* data, std::size_t count, std::size_t block,
                    BlockExponent* exponents);
  BlockExponent (*needed)(const std::byte* data, std::size_t count);
  std::size_t (*to_fixed)(const Blocks& blocks, const std::byte* data, std::int32_t* out);
  void (*from_fixed)(const Blocks& blocks, const std::int32_t* data, std::byte* out);
};

}  // namespace
}  // namespace thalweg::tensor
#endif  // THALWEG_TENSOR_FIXED_POINT_ONCE

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

using D32 = hn::ScalableTag<std::uint32_t>;
using Df = hn::RebindToFloat<D32>;
using Di = hn::RebindToSigned<D32>;

// Loads a type's elements as float32, one vector of D32's lanes at a time, and stores them. `Word`
// holds the bits of one element.
struct Wide {
  using Word = std::uint32_t;
  static constexpr int kMantissaBits = 23;

  static HWY_INLINE hn::VFromD<Df> load(const Word* from) {
    return hn::BitCast(Df(), hn::LoadU(D32(), from));
  }
  static HWY_INLINE void store(hn::VFromD<Df> v, Word* to) {
    hn::StoreU(hn::BitCast(D32(), v), D32(), to);
  }
};

template <class Format>
struct Narrow {
  using Word = std::uint16_t;
  static constexpr int kMantissaBits = std::is_same_v<Format, Float16> ? 10 : 7;
  using Bits = hn::Rebind<Word, D32>;

  static HWY_INLINE hn::VFromD<Df> load(const Word* from) {
    return Format::decode(D32(), hn::PromoteTo(D32(), hn::LoadU(Bits(), from)));
  }
  static HWY_INLINE void store(hn::VFromD<Df> v, Word* to) {
    const auto bits = hn::And(Format::encode(D32(), v), hn::Set(D32(), 0xffff));
    hn::StoreU(hn::DemoteTo(Bits(), hn::BitCast(Di(), bits)), Bits(), to);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
template <>
struct Narrow<Float16> {
  using Word = std::uint16_t;
  static constexpr int kMantissaBits = 10;
  using Bits = hn::Rebind<Word, D32>;
  using Halves = hn::Rebind<hwy::float16_t, Df>;

  static HWY_INLINE hn::VFromD<Df> load(const Word* from) {
    return hn::PromoteTo(Df(), hn::BitCast(Halves(), hn::LoadU(Bits(), from)));
  }
  static HWY_INLINE void store(hn::VFromD<Df> v, Word* to) {
    hn::StoreU(hn::BitCast(Bits(), hn::DemoteTo(Halves(), v)), Bits(), to);
  }
};
#endif

// Calls body(data, out) for every whole vector, and for the rest with padded copies of both, so
// that results do not depend on where in the array an element is. `From` and `To` are the element
// types of the arrays.
template <class From, class To, class Body>
HWY_INLINE void convert_each(const std::byte* data, std::size_t count, std::byte* out,
                             const Body& body) {
  const std::size_t lanes = hn::Lanes(D32());
  std::size_t at = 0;
  for (; count - at >= lanes; at += lanes) {
    body(reinterpret_cast<const From*>(data) + at, reinterpret_cast<To*>(out) + at);
  }
  if (at == count) return;
  HWY_ALIGN From from[hn::MaxLanes(D32())] = {};
  HWY_ALIGN To to[hn::MaxLanes(D32())];
  std::memcpy(from, data + at * sizeof(From), (count - at) * sizeof(From));
  body(from, to);
  std::memcpy(out + at * sizeof(To), to, (count - at) * sizeof(To));
}

// Returns how many elements did not fit.
template <class Type>
HWY_INLINE std::size_t block_to_fixed(const BlockScale& scale, const std::byte* data,
                                      std::size_t count, std::byte* out) {
  const Df d;
  const auto factor = hn::Set(d, scale.factor);
  const auto limit = hn::Set(d, scale.limit);
  const auto largest = hn::Set(d, scale.largest);
  const auto smallest = hn::Neg(largest);
  std::size_t misfits = 0;
  const auto convert = [&](const typename Type::Word* from, std::int32_t* to) HWY_ATTR {
    const auto scaled = hn::Mul(Type::load(from), factor);
    const auto fits = hn::Lt(hn::Abs(scaled), limit);
    auto number = scaled;
    if (HWY_UNLIKELY(!hn::AllTrue(d, fits))) {
      misfits += hn::CountTrue(d, hn::Not(fits));
      number = hn::IfThenZeroElse(hn::IsNaN(scaled), scaled);
    }
    const auto bounded = hn::Min(hn::Max(number, smallest), largest);
    hn::StoreU(hn::NearestInt(bounded), Di(), to);
  };
  convert_each<typename Type::Word, std::int32_t>(data, count, out, convert);
  return misfits;
}

template <class Type>
std::size_t to_fixed(const Blocks& blocks, const std::byte* data, std::int32_t* out) {
  std::size_t misfits = 0;
  blocks.for_each([&](const BlockScale& scale, std::size_t at, std::size_t length) HWY_ATTR {
    if (!scale.finite) {
      std::fill_n(out + at, length, 0);
      return;
    }
    misfits += block_to_fixed<Type>(scale, data + at * sizeof(typename Type::Word), length,
                                    reinterpret_cast<std::byte*>(out + at));
  });
  return misfits;
}

template <class Type>
HWY_INLINE void block_from_fixed(const BlockScale& scale, const std::byte* data, std::size_t count,
                                 std::byte* out) {
  const Df d;
  const auto quantum = hn::Set(d, scale.quantum);
  const auto nan = hn::BitCast(d, hn::Set(D32(), std::uint32_t{Float32::kNan}));
  const auto convert = [&](const std::int32_t* from, typename Type::Word* to) HWY_ATTR {
    const auto value = hn::Mul(hn::ConvertTo(d, hn::LoadU(Di(), from)), quantum);
    Type::store(scale.finite ? value : nan, to);
  };
  convert_each<std::int32_t, typename Type::Word>(data, count, out, convert);
}

template <class Type>
void from_fixed(const Blocks& blocks, const std::int32_t* data, std::byte* out) {
  blocks.for_each([&](const BlockScale& scale, std::size_t at, std::size_t length) HWY_ATTR {
    block_from_fixed<Type>(scale, reinterpret_cast<const std::byte*>(data + at), length,
                           out + at * sizeof(typename Type::Word));
  });
}

// The largest magnitude of a block, as bits.
template <class Type>
HWY_INLINE std::uint32_t largest_bits(const std::byte* data, std::size_t count) {
  using Word = typename Type::Word;
  const hn::ScalableTag<Word> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, static_cast<Word>(hwy::LimitsMax<Word>() / 2));
  const auto load = [&](const std::byte* from) HWY_ATTR {
    return hn::And(hn::LoadU(d, reinterpret_cast<const Word*>(from)), magnitude);
  };
  auto most = hn::Zero(d);
  std::size_t at = 0;
  for (; count - at >= lanes; at += lanes) most = hn::Max(most, load(data + at * sizeof(Word)));
  if (at < count) {
    HWY_ALIGN Word rest[hn::MaxLanes(d)] = {};
    std::memcpy(rest, data + at * sizeof(Word), (count - at) * sizeof(Word));
    most = hn::Max(most, load(reinterpret_cast<const std::byte*>(rest)));
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// The magnitude 1.f * 2^(e - bias) is below 2^(e - bias + 1). A subnormal is its bits, as a whole
// number, times the smallest subnormal.
template <class Type>
HWY_INLINE BlockExponent exponent_of(std::uint32_t bits) {
  constexpr int kExponentBits = 8 * sizeof(typename Type::Word) - 1 - Type::kMantissaBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr int kSpecial = (1 << kExponentBits) - 1;
  const int field = static_cast<int>(bits >> Type::kMantissaBits);
  if (field == kSpecial) return kNotFinite;
  if (bits == 0) return kLeastExponent;
  const int exponent =
      field > 0 ? field - kBias + 1
                : static_cast<int>(std::bit_width(bits)) - kBias + 1 - Type::kMantissaBits;
  if (exponent > kMostExponent) return kNotFinite;
  return static_cast<BlockExponent>(std::max<int>(exponent, kLeastExponent));
}

template <class Type>
void exponents_of(const std::byte* data, std::size_t count, std::size_t block,
                  BlockExponent* exponents) {
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t length = std::min(block, count - at);
    *exponents++ =
        exponent_of<Type>(largest_bits<Type>(data + at * sizeof(typename Type::Word), length));
  }
}

template <class Type>
BlockExponent needed_of(const std::byte* data, std::size_t count) {
  const std::uint32_t bits = largest_bits<Type>(data, count);
  return bits == 0 ? kNoExponent : exponent_of<Type>(bits);
}

template <class Type>
Kernels kernels() {
  return {exponents_of<Type>, needed_of<Type>, to_fixed<Type>, from_fixed<Type>};
}

Kernels kernels_of(DType type) {
  if (type == DType::kFloat16) return kernels<Narrow<Float16>>();
  if (type == DType::kBFloat16) return kernels<Narrow<BFloat16>>();
  return kernels<Wide>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {
namespace {

HWY_EXPORT(kernels_of);

void check_blocks(DType type, std::size_t count, std::size_t block, std::size_t exponents) {
  CHECK(has_fixed_point(type) && block > 0, "fixed point of {}, {} at a time", name_of(type),
        block);
  CHECK(exponents == (count + block - 1) / block, "{} exponents for {} elements, {} at a time",
        exponents, count, block);
}

Blocks checked(DType type, std::size_t count, std::size_t block,
               std::span<const BlockExponent> exponents, int contributions) {
  check_blocks(type, count, block, exponents.size());
  CHECK(contributions >= 1 && contributions <= kMostContributions, "{} contributions",
        contributions);
  for (const BlockExponent exponent : exponents) {
    CHECK(exponent >= kLeastExponent && exponent <= kNotFinite, "exponent {}", exponent);
  }
  return {count, block, exponents.data(), contributions};
}

}  // namespace

double fixed_point_quantum(BlockExponent exponent, int contributions) {
  CHECK(exponent >= kLeastExponent && exponent <= kMostExponent && contributions >= 1 &&
            contributions <= kMostContributions,
        "exponent {}, {} contributions", exponent, contributions);
  return double{BlockScale(exponent, contributions).quantum};
}

void block_exponents(DType type, const void* data, std::size_t count, std::size_t block,
                     std::span<BlockExponent> exponents) {
  check_blocks(type, count, block, exponents.size());
  HWY_DYNAMIC_DISPATCH(kernels_of)
  (type).exponents(static_cast<const std::byte*>(data), count, block, exponents.data());
}

BlockExponent needed_exponent(DType type, const void* data, std::size_t count) {
  CHECK(has_fixed_point(type), "fixed point of {}", name_of(type));
  return HWY_DYNAMIC_DISPATCH(kernels_of)(type).needed(static_cast<const std::byte*>(data), count);
}

std::size_t to_fixed_point(DType type, const void* data, std::size_t count, std::size_t block,
                           std::span<const BlockExponent> exponents, int contributions,
                           std::int32_t* out) {
  const Blocks blocks = checked(type, count, block, exponents, contributions);
  return HWY_DYNAMIC_DISPATCH(kernels_of)(type).to_fixed(blocks,
                                                         static_cast<const std::byte*>(data), out);
}

void from_fixed_point(DType type, const std::int32_t* data, std::size_t count, std::size_t block,
                      std::span<const BlockExponent> exponents, int contributions, void* out) {
  const Blocks blocks = checked(type, count, block, exponents, contributions);
  HWY_DYNAMIC_DISPATCH(kernels_of)(type).from_fixed(blocks, data, static_cast<std::byte*>(out));
}

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
