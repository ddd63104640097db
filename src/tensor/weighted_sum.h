// The weighted sum of 32-bit integers that shows whether any of them has changed: the part of ATP's
// check words that stands for the elements (proto/atp/check.h).
//
// Every place has a weight of its own: an odd number below 2^31 that looks random. Products and
// sums are those of whole numbers modulo 2^64. So the weighted sums of several arrays add up to
// that of their sum, in any order, as long as no element of the sum overflows. Any change of one
// element changes the weighted sum, and so do any two flipped bits and any two 16-bit words that
// change places: a product of a weight and a difference of two elements stays below 2^63, so two of
// them cancel only if they are equal as whole numbers. Modulo 2^32 that would not hold: the highest
// bit of an element would count the same at every place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg::tensor {

inline constexpr std::size_t kMostWeighted = 2048;

// The weight of a place. Requires place < kMostWeighted.
[[nodiscard]] std::int32_t weight_of(std::size_t place);

// `elements` points to elements of std::int32_t and needs no alignment. Requires
// count <= kMostWeighted.
[[nodiscard]] std::uint64_t weighted_sum(const std::byte* elements, std::size_t count);

}  // namespace thalweg::tensor
