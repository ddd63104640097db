#include "tensor/reduce.h"

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/float8-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thalweg::tensor {
namespace HWY_NAMESPACE {
namespace {

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      // There is no instruction that multiplies bytes.
      const auto low_byte = [](auto wide, auto x, auto y)
                                HWY_ATTR { return hn::And(hn::Mul(x, y), hn::Set(wide, 0xff)); };
      return through_wide_lanes(d, low_byte, a, b);
    } else {
      return hn::Mul(a, b);
    }
  }
};

struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Min(a, b);
  }
};

struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Max(a, b);
  }
};

// Min or Max of floats, treated as signed integers. Flipping the magnitude of the negative ones
// makes the integers sort as the floats do, with -0 below +0; flipping again restores them.
template <class Format, class Op>
struct Ordered {
  Op op;

  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const auto magnitude = hn::Set(d, hwy::LimitsMax<typename Format::Bits>());
    const auto flip = [&](V v) HWY_ATTR {
      return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), magnitude));
    };
    const auto infinity = hn::Set(d, Format::kInfinity);
    const auto is_nan =
        hn::Or(hn::Gt(hn::And(a, magnitude), infinity), hn::Gt(hn::And(b, magnitude), infinity));
    return hn::IfThenElse(is_nan, hn::Set(d, Format::kNan), flip(op(d, flip(a), flip(b))));
  }
};

struct Operands {
  std::byte* dst;
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
};

template <class Lane, class Kernel>
void run(const Kernel& kernel, const Operands& operands) {
  for_each_vector<Lane>(kernel, operands.count, operands.dst, operands.a, operands.b);
}

// Sums and products use unsigned lanes, since they wrap: an emulated instruction must not overflow
// a signed integer.
template <class Lane>
void reduce_integers(ReduceOp op, const Operands& operands) {
  using Unsigned = hwy::MakeUnsigned<Lane>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return run<Unsigned>(Sum(), operands);
    case ReduceOp::kProduct:
      return run<Unsigned>(Product(), operands);
    case ReduceOp::kMin:
      return run<Lane>(Min(), operands);
    case ReduceOp::kMax:
      return run<Lane>(Max(), operands);
  }
}

// Sums and products work on Lane, through Arithmetic; min and max work on the format's bits.
template <class Format, class Lane, template <class, class> class Arithmetic>
void reduce_floats(ReduceOp op, const Operands& operands) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return run<Lane>(Arithmetic<Format, Sum>(), operands);
    case ReduceOp::kProduct:
      return run<Lane>(Arithmetic<Format, Product>(), operands);
    case ReduceOp::kMin:
      return run<typename Format::Bits>(Ordered<Format, Min>(), operands);
    case ReduceOp::kMax:
      return run<typename Format::Bits>(Ordered<Format, Max>(), operands);
  }
}

void reduce_on_target(DType type, ReduceOp op, void* dst, const void* a, const void* b,
                      std::size_t count) {
  const Operands operands{static_cast<std::byte*>(dst), static_cast<const std::byte*>(a),
                          static_cast<const std::byte*>(b), count};
  switch (type) {
    case DType::kFloat32:
      return reduce_floats<Float32, float, Canonical>(op, operands);
    case DType::kFloat64:
      return reduce_floats<Float64, double, Canonical>(op, operands);
    case DType::kFloat16:
      return reduce_floats<Float16, std::uint16_t, Widened>(op, operands);
    case DType::kBFloat16:
      return reduce_floats<BFloat16, std::uint16_t, Widened>(op, operands);
    case DType::kInt8:
      return reduce_integers<std::int8_t>(op, operands);
    case DType::kInt16:
      return reduce_integers<std::int16_t>(op, operands);
    case DType::kInt32:
      return reduce_integers<std::int32_t>(op, operands);
    case DType::kInt64:
      return reduce_integers<std::int64_t>(op, operands);
    case DType::kFloat8E4m3fn:
      return reduce_floats<Float8E4m3fn, std::uint8_t, Widened>(op, operands);
    case DType::kFloat8E5m2:
      return reduce_floats<Float8E5m2, std::uint8_t, Widened>(op, operands);
  }
}

std::int64_t this_target() { return HWY_TARGET; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thalweg::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thalweg::tensor {
namespace {

HWY_EXPORT(reduce_on_target);
HWY_EXPORT(this_target);

bool same_or_disjoint(const void* x, const void* y, std::size_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(x);
  const auto b = reinterpret_cast<std::uintptr_t>(y);
  return a == b || (a < b ? b - a : a - b) >= bytes;
}

}  // namespace

void reduce(DType type, ReduceOp op, void* dst, const void* a, const void* b, std::size_t count) {
  const std::size_t bytes = count * size_of(type);
  CHECK(same_or_disjoint(dst, a, bytes) && same_or_disjoint(dst, b, bytes),
        "an operand of {} bytes overlaps the result in part", bytes);
  HWY_DYNAMIC_DISPATCH(reduce_on_target)(type, op, dst, a, b, count);
}

const char* simd_target() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(this_target)()); }

}  // namespace thalweg::tensor
#endif  // HWY_ONCE
