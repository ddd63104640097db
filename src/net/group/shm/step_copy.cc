#include "net/group/shm/step_copy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace thalweg::net {
namespace {

void store(std::byte* to, const std::byte* from) { std::memcpy(to, from, StepCopy::kStep); }

#if defined(__SSE2__)
constexpr std::size_t kCacheLine = 64;

void stream(std::byte* to, const std::byte* from) {
  const auto past = static_cast<std::size_t>(std::bit_cast<std::uintptr_t>(to) % kCacheLine);
  std::size_t at = (kCacheLine - past) % kCacheLine;
  std::memcpy(to, from, at);
  for (; at + kCacheLine <= StepCopy::kStep; at += kCacheLine) {
    for (std::size_t i = at; i < at + kCacheLine; i += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  std::memcpy(to + at, from + at, StepCopy::kStep - at);
  // Streaming stores are not ordered with others. The fence makes them visible before the store
  // that says that the bytes are there.
  _mm_sfence();
}
#else
// Without SSE2 there are no streaming stores.
void stream(std::byte* to, const std::byte* from) { store(to, from); }
#endif

}  // namespace

template <typename Copy>
Duration StepCopy::time_of(const Copy& copy) const {
  const Time begin = clock_();
  copy();
  return clock_() - begin;
}

void StepCopy::copy(std::byte* to, const std::byte* from) {
  const unsigned step = steps_++;
  if (plain_ > Duration()) {
    const Duration streamed = time_of([&] { stream(to, from); });
    const bool slow = std::exchange(plain_, Duration()) > streamed * kSlowTimes;
    slow_ = slow ? std::min(slow_ + 1, kSlowInARow) : 0;
  } else if (step % (streams() ? kStreamedPerTimed : kPlainPerTimed) == 0) {
    plain_ = time_of([&] { store(to, from); });
    if (plain_ > kFast) return;
    plain_ = Duration();
    slow_ = 0;
  } else if (streams()) {
    stream(to, from);
  } else {
    store(to, from);
  }
}

}  // namespace thalweg::net
