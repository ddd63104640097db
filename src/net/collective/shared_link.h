// SharedLink: memory that two processes of one host share, with a ring each way.
//
// One of them makes it, and tells the other where it is (an offer, over the stream between them):
// a file without a name in any directory, found through the maker's open files in /proc. Nothing of
// it is left when both have ended, however they do. The kernel lets only a process look there that
// could also debug the maker: of the same user, and seeing the same processes. The file's label has
// a random number of the offer's, so what is opened is what was offered and nothing else.
//
// The file's size is sealed: no process can make an access fail by cutting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <thalweg/result.h>

#include "net/collective/byte_ring.h"
#include "net/fd.h"

namespace thalweg {

// Of each ring: the smallest of those that were fast when it was chosen, of 256 KiB to 4 MiB.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20;
inline constexpr std::size_t kLeastRingBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMostRingBytes = std::size_t{64} << 20;

class SharedLink {
 public:
  struct Offer {
    std::uint32_t pid = 0;
    std::uint32_t fd = 0;  // of that process
    std::uint64_t label = 0;
  };

  // `ring_bytes`: a power of two within the limits above.
  static Result<std::unique_ptr<SharedLink>> make(std::size_t ring_bytes = kRingBytes);
  // What another process made, or this one.
  static Result<std::unique_ptr<SharedLink>> open(const Offer& offer);
  ~SharedLink();
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;

  // Of a link that this process made: valid until close_offer().
  [[nodiscard]] Offer offer() const;
  // The other has opened it.
  void close_offer() { file_.reset(); }

  RingReader& in() { return in_; }
  RingWriter& out() { return out_; }

 private:
  // What mmap() gave, with a ring each way.
  struct Mapping {
    std::byte* start = nullptr;
    std::size_t ring_bytes = 0;
    [[nodiscard]] RingMemory ring(int index) const;
  };
  static Result<Mapping> map(const Fd& file, std::size_t ring_bytes);
  SharedLink(Fd file, std::uint64_t label, const Mapping& mapping, bool maker);

  Fd file_;
  std::uint64_t label_;
  Mapping mapping_;
  RingReader in_;
  RingWriter out_;
};

}  // namespace thalweg
