// The kernel that tags.h uses: mean magnitudes of equal stretches of an array.
#pragma once

#include <cstddef>

#include <thalweg/types.h>

namespace thalweg::tensor {

// out[i] = mean |data[j]| over the i-th stretch of `stretch` elements; the last may be shorter.
// Requires a float type, stretch > 0, and room for ⌈count / stretch⌉ results.
void mean_magnitudes(DType type, const void* data, std::size_t count, std::size_t stretch,
                     double* out);

}  // namespace thalweg::tensor
