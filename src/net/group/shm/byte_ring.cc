#include "net/group/shm/byte_ring.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace thalweg::net {
namespace {

// Bytes that are copied before the reader is shown them, so that both sides work at the same time.
constexpr std::size_t kStep = StepCopy::kStep;
// Bytes of what peek() sees that are prefetched at once. The reader looks at them piece by piece,
// and every line is in the writer's cache.
constexpr std::size_t kAhead = 1536;
constexpr std::size_t kLine = 64;
// After a write of at most this many bytes, the place for as many again is prefetched while this
// side waits.
constexpr std::size_t kMostNext = std::size_t{4} << 10 | kLine;

// Prefetches the line for this core alone, without changing it.
inline void fetch_to_write(const std::byte* line) {
#if defined(__x86_64__)
  // The compiler's builtin, without flags for a newer machine, prefetches for reading only.
  asm volatile("prefetchw %0" : : "m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

std::size_t RingWriter::room() {
  read_ = memory_.state->read.load(std::memory_order_seq_cst);
  const std::uint64_t used = written_ - read_;
  broken_ = broken_ || used > memory_.capacity;
  return broken_ ? 0 : memory_.capacity - static_cast<std::size_t>(used);
}

std::size_t RingWriter::write(std::span<const iovec> pieces) {
  const std::uint64_t begin = written_;
  std::uint64_t published = begin;
  std::size_t all = 0;
  for (const iovec& piece : pieces) all += piece.iov_len;
  // The reader's index is in the reader's cache, so it is read only if there may be too little
  // room.
  std::size_t free = memory_.capacity - static_cast<std::size_t>(written_ - read_);
  if (all > free) free = room();
  for (const iovec& piece : pieces) {
    for (std::size_t at = 0; at < piece.iov_len;) {
      const std::size_t wanted = std::min(piece.iov_len - at, kStep);
      const std::size_t size = wanted <= free ? wanted : free - free % kRingGrain;
      if (size == 0) {
        if (written_ != published) publish();
        return static_cast<std::size_t>(written_ - begin);
      }
      std::byte* const to = memory_.bytes + (written_ & (memory_.capacity - 1));
      const std::byte* const from = static_cast<const std::byte*>(piece.iov_base) + at;
      if (size == kStep) {
        copy_.copy(to, from);
      } else {
        std::memcpy(to, from, size);
      }
      written_ += size;
      free -= size;
      at += size;
      if (written_ - published >= kStep) {
        publish();
        published = written_;
      }
    }
  }
  if (written_ != published) publish();
  if (all <= kMostNext) fetch_next(all);
  return static_cast<std::size_t>(written_ - begin);
}

// A write is often followed by one of the same size. Its lines are in the reader's cache from the
// last lap, or in none.
void RingWriter::fetch_next(std::size_t bytes) const {
  for (std::size_t at = 0; at < bytes + kLine; at += kLine) {
    fetch_to_write(memory_.bytes + ((written_ + at) & (memory_.capacity - 1)));
  }
}

bool RingWriter::prepare_sleep() {
  memory_.state->writer_sleeps.store(1, std::memory_order_seq_cst);
  return room() >= kRingGrain || broken_;
}

std::span<const std::byte> RingReader::peek() {
  const std::uint64_t written = memory_.state->written.load(std::memory_order_seq_cst);
  const std::uint64_t size = written - read_;
  broken_ = broken_ || size > memory_.capacity;
  seen_ = broken_ ? 0 : static_cast<std::size_t>(size);
  const std::byte* first = memory_.bytes + (read_ & (memory_.capacity - 1));
  for (std::size_t at = 0; at < std::min(seen_, kAhead); at += kLine)
    __builtin_prefetch(first + at);
  return {first, seen_};
}

void RingReader::consume(std::size_t bytes) {
  CHECK(bytes <= seen_);
  seen_ -= bytes;
  read_ += bytes;
  memory_.state->read.store(read_, std::memory_order_seq_cst);
}

bool RingReader::prepare_sleep() {
  memory_.state->reader_sleeps.store(1, std::memory_order_seq_cst);
  return !peek().empty() || broken_;
}

}  // namespace thalweg::net
