// Converts floats to 32-bit integers and back, so that switches can sum them (SwitchML, section
// 3.7; ATP, section 5.4).
//
// A tensor is cut into blocks. Every block has an exponent E with |x| < 2^E for all its elements at
// all workers: at least the largest of the workers' own exponents (needed_exponent). They exchange
// these ahead or predict them (proto/atp/exponents.h). With n workers and c = ceil(log2 n), an
// element becomes the integer nearest to x / q, halves to even, where
//
//   q = 2^(E + c - 31)
//
// is the block's quantum. Its reciprocal is SwitchML's factor, (2^31 - 1) / (n * 2^E), rounded down
// to a power of two, so that multiplying by it is exact. Then
//
// 1. no sum of n such integers overflows: each is at most (2^31 - 1) / n in magnitude;
// 2. an element converted back is within q/2 of the original; with more than 128 workers, where the
//    largest integers are clamped to keep 1, within q. Integers add exactly, so a sum is within n
//    times that of the sum of real numbers, before it is rounded to the element type;
// 3. the result does not depend on the instruction set, nor on the order of the workers.
//
// An element that does not fit the exponent (|x| >= 2^E, because the exponent is that of another
// block or leaves out a worker's) is clamped to the largest integer. A NaN becomes 0. The
// conversion returns how many such elements there were; if there were any, the sum must not be
// used.
//
// A block with an infinity, a NaN or a number from 2^126 up, four of which overflow a float32, has
// the exponent kNotFinite, which is above all others. Its elements travel as 0 and all come back as
// NaN at every worker, so that code that looks for overflowing gradients (loss scaling) finds them
// as it would after a sum of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <thalweg/types.h>

namespace thalweg::tensor {

using BlockExponent = std::int8_t;  // the type on the wire (wire/atp_packet.h)
// The exponent of blocks whose elements are all smaller or zero; it keeps q a normal float32.
inline constexpr BlockExponent kLeastExponent = -90;
inline constexpr BlockExponent kMostExponent = 126;
inline constexpr BlockExponent kNotFinite = 127;
// What a block needs whose elements are all zero: any exponent will do. It is below all others.
inline constexpr BlockExponent kNoExponent = -128;
inline constexpr int kMostContributions = 1 << 16;

// Types that can be sent in fixed point: float32, float16, bfloat16. The 8-bit floats cannot: as
// 32-bit integers they would take four times their bytes.
constexpr bool has_fixed_point(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat16 || type == DType::kBFloat16;
}

// The quantum q of a block with `contributions` workers. Requires an exponent from kLeastExponent
// to kMostExponent and 1 <= contributions <= kMostContributions.
double fixed_point_quantum(BlockExponent exponent, int contributions);

// In the following functions block i is the elements [i * block, (i + 1) * block); the last may be
// shorter. `exponents` has one exponent per block. Arrays need no alignment and must not overlap.

// Computes the exponents of one worker's blocks.
void block_exponents(DType type, const void* data, std::size_t count, std::size_t block,
                     std::span<BlockExponent> exponents);

// The least exponent that one worker's block can have: as block_exponents() says, or kNoExponent.
BlockExponent needed_exponent(DType type, const void* data, std::size_t count);
// Whether it can be the result of needed_exponent().
constexpr bool is_needed_exponent(std::int8_t exponent) {
  return exponent == kNoExponent || exponent >= kLeastExponent;
}

// Converts floats to integers. Returns how many elements did not fit (see above).
std::size_t to_fixed_point(DType type, const void* data, std::size_t count, std::size_t block,
                           std::span<const BlockExponent> exponents, int contributions,
                           std::int32_t* out);

// Converts sums, or single contributions, back to floats: q times the integer, rounded to nearest
// even in float32 and from there to the type.
void from_fixed_point(DType type, const std::int32_t* data, std::size_t count, std::size_t block,
                      std::span<const BlockExponent> exponents, int contributions, void* out);

}  // namespace thalweg::tensor
