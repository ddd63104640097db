// One direction of the memory that two processes share: a ring of bytes with one writer and one
// reader. The reader always sees the bytes in one piece, because the ring's memory is mapped twice,
// end to end (shared_rings.h). The end of the ring therefore never cuts an element of a tensor.
//
// Sleeping. A side that is about to sleep sets a flag in the ring and then looks at the other
// side's index once more. The other side looks at the flag after every change of its index. If the
// flag is set, it wakes the sleeper by a byte on a socket, called a bell. All four accesses are
// sequentially consistent, so in their one order either the sleeper's last look comes after the
// change and finds it, or the other side's look comes after the flag was set and finds that. With
// weaker orders both could miss each other, because a store and a later load of another place may
// pass each other.
//
// Trust. The other process may write anything into the memory. If its index has a value that no
// correct process could have written, this side becomes broken() and moves nothing more. It never
// reads its own index back. So no access is outside the ring. The content of the bytes is for
// others to check.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "net/group/shm/step_copy.h"

namespace thalweg::net {

// The state of a ring that both sides see, besides its bytes. Indices count bytes since the
// beginning. Each index has 128 bytes to itself, because processors fetch lines of 64 bytes in
// pairs.
struct RingState {
  alignas(128) std::atomic<std::uint64_t> written = 0;  // written by the writer
  alignas(128) std::atomic<std::uint64_t> read = 0;     // written by the reader
  alignas(128) std::atomic<std::uint32_t> reader_sleeps = 0;
  std::atomic<std::uint32_t> writer_sleeps = 0;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A long write is cut only at multiples of this after the beginning of a piece: that is never
// inside an element.
inline constexpr std::size_t kRingGrain = 64;

// Both sides need it. `bytes` is mapped twice, and `capacity` is a power of two of at least
// kRingGrain.
struct RingMemory {
  RingState* state = nullptr;
  std::byte* bytes = nullptr;
  std::size_t capacity = 0;
};

class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory, StepCopy copy = StepCopy())
      : memory_(memory), copy_(copy) {}

  // Copies as many bytes of the pieces as there is room for when it begins. Returns how many.
  std::size_t write(std::span<const iovec> pieces);
  [[nodiscard]] bool broken() const { return broken_; }

  // Call after writing. True: the reader sleeps, and needs a bell from the caller now.
  [[nodiscard]] bool must_wake_reader() { return take(memory_.state->reader_sleeps); }

  // Asks the reader for a bell when there is room. True: there is room already, or the ring is
  // broken.
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
  std::uint64_t read_ = 0;  // the reader's index as last seen
  bool broken_ = false;
};

class RingReader {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}

  // Returns the bytes that can be read. A dishonest process may change them meanwhile.
  [[nodiscard]] std::span<const std::byte> peek();
  // Compares the indices only. Unlike peek(), it does not check the writer's index.
  [[nodiscard]] bool is_empty() const {
    return memory_.state->written.load(std::memory_order_relaxed) == read_;
  }
  // Requires that the last peek() saw at least `bytes` more.
  void consume(std::size_t bytes);
  [[nodiscard]] bool broken() const { return broken_; }

  // Call after reading. True: the writer sleeps, and needs a bell from the caller now.
  [[nodiscard]] bool must_wake_writer() { return RingWriter::take(memory_.state->writer_sleeps); }

  // Asks the writer for a bell when there is something to read. True: there is something already,
  // or the ring is broken.
  [[nodiscard]] bool prepare_sleep();
  void wake_up() { memory_.state->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  std::uint64_t read_ = 0;
  std::size_t seen_ = 0;  // bytes that can be read, as of the last peek()
  bool broken_ = false;
};

}  // namespace thalweg::net
