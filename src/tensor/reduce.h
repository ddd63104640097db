// The arithmetic of collectives: elementwise reduction of two arrays, vectorized for the best
// instruction set of the machine that runs it.
//
// The result does not depend on that instruction set: every target gives the same bits.
//
//   integers   Sum and product wrap around (two's complement). The mean truncates toward zero.
//   floats     Sum, product and mean are rounded to nearest even. A result that is NaN is always
//              the one canonical NaN (quiet, positive, payload 0), so a op b and b op a have the
//              same bits. Subnormals are kept.
//   min, max   NaN if either operand is NaN; -0 is below +0 (IEEE 754-2019 minimum and maximum).
//   16 bits    float16 and bfloat16 are widened to float32, computed there and rounded back to
//              nearest even at every step; overflow gives infinity.
//   8 bits     float8_e4m3fn and float8_e5m2 likewise, as PyTorch 2.13 converts them; overflow is
//              infinity in e5m2, and the largest number, 448, in e4m3fn, which has no infinity. The
//              canonical NaN is the one that PyTorch's conversion gives, 0x7f in both.
//
// Floating point runs in the caller's environment; the guarantees need the default one (round to
// nearest, no flush to zero).
#pragma once

#include <cstddef>
#include <cstdint>

#include <thalweg/types.h>

namespace thalweg::tensor {

// dst[i] = a[i] op b[i] for i < count. For kMean this is a sum; finish_mean() then divides it.
//
// Each of a and b must be dst itself or not overlap it. Pointers need no alignment.
void reduce(DType type, ReduceOp op, void* dst, const void* a, const void* b, std::size_t count);

// Divides the sums in `data` by the number of contributions in them, in place and rounding once.
// The narrow floats and float32 divide in float32, where counts above 2^24 are rounded first.
// Requires contributions > 0.
void finish_mean(DType type, void* data, std::size_t count, std::int64_t contributions);

// The instruction set in use, as Highway names it: "AVX2", "AVX3", "NEON", …
const char* simd_target();

}  // namespace thalweg::tensor
