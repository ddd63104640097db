// Element types and reductions of the collectives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat8E4m3fn,  // 4 bits of exponent, 3 of mantissa, no infinity; up to 448
  kFloat8E5m2,    // 5 bits of exponent, 2 of mantissa; up to 57,344
};
inline constexpr int kDTypeCount = 10;

// kMean is the sum divided once, at the end, by the number of contributions.
enum class ReduceOp : std::uint8_t { kSum, kProduct, kMin, kMax, kMean };
inline constexpr int kReduceOpCount = 5;

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::kInt8:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(DType type) {
  switch (type) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
      return true;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return false;
  }
  return false;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat8E4m3fn:
      return "float8_e4m3fn";
    case DType::kFloat8E5m2:
      return "float8_e5m2";
  }
  return "?";
}

constexpr const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMean:
      return "mean";
  }
  return "?";
}

}  // namespace thalweg
