// One direction of the memory that two processes share: a ring of bytes with one writer and one
// reader. What the reader sees of it is always in one piece, because the ring's memory is mapped
// twice, end to end (shared_link.h): no element of a tensor is ever cut by its end.
//
// Sleeping. A side that is about to sleep says so in the ring, and looks once more; the other looks
// there after every change, and rings a bell of another kind (a byte on a socket) if it is set. All
// four accesses are sequentially consistent, so in their one order either the sleeper's last look
// comes after the change, and finds it, or the other's look at the flag comes after the flag was
// set, and finds that. Anything weaker lets both miss each other: a store and a later load of
// another place may pass each other.
//
// Trust. The other process may write anything into the memory. An index of its that no honest one
// could have makes the side broken(), which then moves nothing; its own index it never reads back.
// So no access is outside the ring. What the bytes say is for others to doubt.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "net/collective/step_copy.h"

namespace thalweg {

// What both sides see of a ring, beside its bytes. Indices count bytes since the beginning. Each
// lies where no other write disturbs it: processors fetch lines of 64 bytes in pairs.
struct RingState {
  alignas(128) std::atomic<std::uint64_t> written = 0;  // of the writer
  alignas(128) std::atomic<std::uint64_t> read = 0;     // of the reader
  alignas(128) std::atomic<std::uint32_t> reader_sleeps = 0;
  std::atomic<std::uint32_t> writer_sleeps = 0;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A long write is cut at multiples of this after the beginning of a piece, where no element is.
inline constexpr std::size_t kRingGrain = 64;

// Both sides: `bytes` is mapped twice, and `capacity` a power of two of at least kRingGrain.
struct RingMemory {
  RingState* state = nullptr;
  std::byte* bytes = nullptr;
  std::size_t capacity = 0;
};

class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory, StepCopy copy = StepCopy())
      : memory_(memory), copy_(copy) {}

  // Copies as many bytes of the pieces as there is room for when it begins, and says how many.
  std::size_t write(std::span<const iovec> pieces);
  [[nodiscard]] bool broken() const { return broken_; }

  // After writing. True: the reader sleeps, and gets no other bell for what was written so far.
  [[nodiscard]] bool must_wake_reader() { return take(memory_.state->reader_sleeps); }

  // Asks to be woken when there is room. True: there is, or the ring is broken.
  [[nodiscard]] bool prepare_sleep();
  void wake_up() { memory_.state->writer_sleeps.store(0, std::memory_order_relaxed); }

  static bool take(std::atomic<std::uint32_t>& flag) {
    return flag.load(std::memory_order_seq_cst) != 0 &&
           flag.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  std::size_t room();
  void fetch_next(std::size_t bytes) const;
  void publish() { memory_.state->written.store(written_, std::memory_order_seq_cst); }

  RingMemory memory_;
  StepCopy copy_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  // as last seen
  bool broken_ = false;
};

class RingReader {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}

  // What can be read. The other process may change it meanwhile, if it is not honest.
  [[nodiscard]] std::span<const std::byte> peek();
  // As far as the writer's index says; peek() doubts it.
  [[nodiscard]] bool is_empty() const {
    return memory_.state->written.load(std::memory_order_relaxed) == read_;
  }
  // Requires so many bytes in what was last seen.
  void consume(std::size_t bytes);
  [[nodiscard]] bool broken() const { return broken_; }

  // After reading. True: the writer sleeps, and gets no other bell for the room made so far.
  [[nodiscard]] bool must_wake_writer() { return RingWriter::take(memory_.state->writer_sleeps); }

  // Asks to be woken when there is something to read. True: there is, or the ring is broken.
  [[nodiscard]] bool prepare_sleep();
  void wake_up() { memory_.state->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  std::uint64_t read_ = 0;
  std::size_t seen_ = 0;  // bytes that can be read, as of the last peek()
  bool broken_ = false;
};

}  // namespace thalweg
