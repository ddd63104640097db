#include "net/collective/step_copy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "net/system.h"

namespace thalweg {
namespace {

#if defined(__SSE2__)
constexpr std::size_t kLine = 64;

void stream(std::byte* to, const std::byte* from, std::size_t size) {
  const auto past = static_cast<std::size_t>(std::bit_cast<std::uintptr_t>(to) % kLine);
  std::size_t at = std::min(size, (kLine - past) % kLine);
  std::memcpy(to, from, at);
  for (; at + kLine <= size; at += kLine) {
    for (std::size_t i = at; i < at + kLine; i += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  std::memcpy(to + at, from + at, size - at);
  // They are in no order with other stores: what says that the bytes are there must come behind.
  _mm_sfence();
}
#else
void stream(std::byte* to, const std::byte* from, std::size_t size) { std::memcpy(to, from, size); }
#endif

}  // namespace

void StepCopy::copy(std::byte* to, const std::byte* from) {
  if (is_timed()) {
    const Time begin = monotonic_now();
    std::memcpy(to, from, kStep);
    took(monotonic_now() - begin);
  } else if (streams()) {
    stream(to, from, kStep);
  } else {
    std::memcpy(to, from, kStep);
  }
  ++steps_;
}

void StepCopy::took(Duration time) { slow_ = time > kSlow ? std::min(slow_ + 1, kSlowInARow) : 0; }

}  // namespace thalweg
