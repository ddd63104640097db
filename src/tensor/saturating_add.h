// Sums of 32-bit integers that never wrap: what a switch adds up, and a server
// (docs/protocol-atp.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg {

// dst[i] += b[i], an element that leaves the range stays at its end. True if any did. `b` points to
// elements of std::int32_t and needs no alignment; the arrays must not overlap.
bool add_saturating(std::int32_t* dst, const std::byte* b, std::size_t count);

}  // namespace thalweg
