// What `thalweg bench kernels` measures: the memory bandwidth of the kernels that touch every
// element of a tensor (reduction, tagging, fixed point, authentication), beside memcpy.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/units.h"

namespace thalweg::lab {

// A measurement repeats every kernel at least this often.
inline constexpr int kMinKernelRepetitions = 3;

// How fast one kernel, or memcpy, ran in each repetition.
struct KernelRate {
  double passes = 0;     // how often an element of the array is read or written
  Histogram array_gbps;  // 1e9 bytes of one array per second

  void add(std::size_t array_bytes, double seconds) {
    array_gbps.add(static_cast<double>(array_bytes) / seconds * 1e-9);
  }
  [[nodiscard]] double median_array_gbps() const { return array_gbps.percentile(50); }
  [[nodiscard]] double median_gbps() const { return passes * median_array_gbps(); }
};

struct Kernel {
  std::string name;
  std::string type;
  std::string op;
  KernelRate rate;
  std::function<void(std::byte* dst, const std::byte* b, std::size_t size)> run;
};

struct KernelMeasurement {
  std::vector<Kernel> kernels;
  KernelRate copy{2, {}};  // of memcpy
  int repetitions = 0;
};

// Measures all kernels over three arrays of `size`, until `seconds` have passed and at least
// kMinKernelRepetitions times. Requires a multiple of 8 bytes. Throws std::bad_alloc if there is no
// memory for the arrays.
[[nodiscard]] KernelMeasurement measure_kernels(Bytes size, double seconds);

// The measurement as a JSON object, and as a table for people.
[[nodiscard]] std::string kernels_json(const KernelMeasurement& measurement, Bytes size);
[[nodiscard]] std::string kernels_text(const KernelMeasurement& measurement, Bytes size);

}  // namespace thalweg::lab
