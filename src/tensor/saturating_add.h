// Adds 32-bit integers without wrapping around, as ATP's switches and servers do
// (docs/protocol-atp.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg::tensor {

// dst[i] += b[i]; an element that would leave the range takes the end of the range. Returns whether
// any did. `b` points to elements of std::int32_t and needs no alignment; the arrays must not
// overlap.
bool add_saturating(std::int32_t* dst, const std::byte* b, std::size_t count);

}  // namespace thalweg::tensor
