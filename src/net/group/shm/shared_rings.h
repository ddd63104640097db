// SharedRings: memory that two processes of one host share, with one ring for each direction.
//
// One process makes it and tells the other where it is, by an offer over the stream between them.
// The memory is a file that has no name in any directory; the other process opens it through the
// maker's open files in /proc. Nothing of it remains when both processes have ended, however they
// end. The kernel allows this only to a process that could also debug the maker: one of the same
// user that sees the same processes. The file's label holds a random number that is also in the
// offer, so the other process opens exactly the file that was offered.
//
// The file's size is sealed: no process can make an access fail by truncating the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <thalweg/result.h>

#include "net/group/shm/byte_ring.h"
#include "net/io/fd.h"

namespace thalweg::net {

// Bytes of each ring: the smallest size that was as fast as any, among 256 KiB to 4 MiB.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20;
inline constexpr std::size_t kLeastRingBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMostRingBytes = std::size_t{64} << 20;

class SharedRings {
 public:
  struct Offer {
    std::uint32_t pid = 0;
    std::uint32_t fd = 0;  // number of the file in that process
    std::uint64_t label = 0;
  };

  // `ring_bytes` must be a power of two within the limits above.
  static Result<std::unique_ptr<SharedRings>> make(std::size_t ring_bytes = kRingBytes);
  // Opens the memory that another process, or this one, made and offered.
  static Result<std::unique_ptr<SharedRings>> open(const Offer& offer);
  ~SharedRings();
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  // Requires that this process made the memory. The offer is valid until close_offer().
  [[nodiscard]] Offer offer() const;
  // Call when the other process has opened the memory.
  void close_offer() { file_.reset(); }

  RingReader& in() { return in_; }
  RingWriter& out() { return out_; }

 private:
  // The mapped file, with both rings.
  struct Mapping {
    std::byte* start = nullptr;
    std::size_t ring_bytes = 0;
    [[nodiscard]] RingMemory ring(int index) const;
  };
  static Result<Mapping> map(const Fd& file, std::size_t ring_bytes);
  SharedRings(Fd file, std::uint64_t label, const Mapping& mapping, bool maker);

  Fd file_;
  std::uint64_t label_;
  Mapping mapping_;
  RingReader in_;
  RingWriter out_;
};

}  // namespace thalweg::net
