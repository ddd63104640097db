// Tensors in the caller's memory: elements of one type, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <thalweg/types.h>

namespace thalweg {

// The element type of a C++ type. Types that have none do not compile.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kFloat64> {};
template <>
struct DTypeOf<std::int8_t> : std::integral_constant<DType, DType::kInt8> {};
template <>
struct DTypeOf<std::int16_t> : std::integral_constant<DType, DType::kInt16> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::kInt32> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::kInt64> {};

// A tensor to be read. The caller must keep it unchanged until the transfer or operation is over.
struct TensorView {
  const void* data = nullptr;
  std::int64_t elements = 0;
  DType type = DType::kFloat32;

  template <class T>
  static TensorView of(std::span<const T> values) {
    return {values.data(), static_cast<std::int64_t>(values.size()), DTypeOf<T>::value};
  }
  template <class T>
  static TensorView of(const std::vector<T>& values) {
    return of(std::span<const T>(values));
  }
};
// A tensor to be written. Its content is undefined until the transfer or operation is over.
struct TensorSpan {
  void* data = nullptr;
  std::int64_t elements = 0;
  DType type = DType::kFloat32;

  template <class T>
  static TensorSpan of(std::span<T> values) {
    return {values.data(), static_cast<std::int64_t>(values.size()), DTypeOf<T>::value};
  }
  template <class T>
  static TensorSpan of(std::vector<T>& values) {
    return of(std::span<T>(values));
  }

  // Implicit, so that a tensor that may be written can also be passed where one is read.
  operator TensorView() const {  // NOLINT(google-explicit-constructor)
    return {data, elements, type};
  }
};

}  // namespace thalweg
