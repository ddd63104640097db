// Floats as 32-bit integers, so that switches can sum them: the numbers of in-network aggregation
// (SwitchML, section 3.7; ATP, section 5.4).
//
// A tensor is cut into blocks. Every block has an exponent E with |x| < 2^E for all its elements at
// all workers: the largest of the workers' own exponents (block_exponents), which they exchange
// while an earlier block is under way, one block ahead. With n workers and c = ceil(log2 n), an
// element becomes the integer nearest to x / q, halves to even, where
//
//   q = 2^(E + c - 31)
//
// is the block's quantum. SwitchML's factor, (2^31 - 1) / (n * 2^E), is rounded down to this power
// of two: multiplying by it is exact. Then
//
// 1. no sum of n such integers overflows: each is at most (2^31 - 1) / n in magnitude;
// 2. an element comes back within q/2 of what it was; with more than 128 workers, where the largest
//    is cut off to keep 1, within q. Integers add exactly, so a sum is within n times that of the
//    sum of real numbers, before it is rounded to the element type;
// 3. the result does not depend on the instruction set, nor on the order of the workers.
//
// An element that does not fit the exponent in use (|x| >= 2^E, because another block was meant or
// somebody's exponent is not in it) is cut off at the largest integer; it and a NaN, which becomes
// 0, are counted: conversion says how many there were, and the sum is then not to be used.
//
// A block with an infinity, a NaN or a number from 2^126 up, four of which are too much for a
// float32, has the exponent kNotFinite, above all others. Its elements travel as 0 and all come
// back as NaN, at every worker: what looks for overflowing gradients (loss scaling) finds them as
// it would after a sum of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <thalweg/types.h>

namespace thalweg {

using BlockExponent = std::int8_t;  // as it travels (wire/atp_packet.h)
// Of blocks with nothing larger, zeros too: q stays a normal float32.
inline constexpr BlockExponent kLeastExponent = -90;
inline constexpr BlockExponent kMostExponent = 126;
inline constexpr BlockExponent kNotFinite = 127;
inline constexpr int kMostContributions = 1 << 16;

// Types that can be sent in fixed point: float32, float16, bfloat16.
constexpr bool has_fixed_point(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat16 || type == DType::kBFloat16;
}

// The quantum q of a block that `contributions` workers take part in. Requires a finite exponent
// and 1 <= contributions <= kMostContributions.
double fixed_point_quantum(BlockExponent exponent, int contributions);

// In what follows block i is the elements [i * block, (i + 1) * block), the last one may be
// shorter, and `exponents` has one for each. Arrays need no alignment and must not overlap.

// The exponents of one worker's blocks.
void block_exponents(DType type, const void* data, std::size_t count, std::size_t block,
                     std::span<BlockExponent> exponents);

// Returns how many elements did not fit (see above).
std::size_t to_fixed_point(DType type, const void* data, std::size_t count, std::size_t block,
                           std::span<const BlockExponent> exponents, int contributions,
                           std::int32_t* out);

// Sums, or single contributions, back to floats: q times the integer, rounded to nearest even in
// float32 and from there to the type.
void from_fixed_point(DType type, const std::int32_t* data, std::size_t count, std::size_t block,
                      std::span<const BlockExponent> exponents, int contributions, void* out);

}  // namespace thalweg
