// Frames (wire/frame.h) on streams with FrameCheck::kSealed. The header is encrypted and has a tag;
// the payload is encrypted, and its tag is in the header:
//
//   offset bytes field
//   0      32    header of the frame    ┐
//   32     16    tag of the payload     ┘ encrypted, as record 2n of the direction
//   48     16    tag of the 48 bytes before it
//   64     …     payload, encrypted as record 2n + 1; as long as before
//
// n counts the frames of the direction, from 0. So a receiver knows the whole frame, and the place
// of each in the stream is a part of what its tags cover. The payload of a kLaneData comes by
// another stream but belongs to the records of this one. The hello is frame 0.
//
// A receiver uses nothing of a header or of a payload before it has checked its tag.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "wire/frame.h"
#include "wire/record_cipher.h"
#include "wire/wire.h"

namespace thalweg::wire {

inline constexpr std::size_t kSealedFrameSize = kFrameSize + 2 * kKeyedTagSize;
using SealedHeader = std::array<std::byte, kSealedFrameSize>;

class FrameSealer {
 public:
  explicit FrameSealer(const StreamSecret& secret, std::uint64_t records_per_key = kRecordsPerKey)
      : cipher_(secret, RecordCipher::Direction::kSeal, records_per_key) {}

  // The place of one frame among those of the stream. Its payload and its header are sealed at most
  // once each: neither a ticket nor its number can be used again.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& from) noexcept : Ticket() { *this = std::move(from); }
    Ticket& operator=(Ticket&& from) noexcept {
      number_ = from.number_;
      payload_ = from.payload_;
      sealed_payload_ = from.sealed_payload_;
      valid_ = std::exchange(from.valid_, false);
      return *this;
    }
    ~Ticket() = default;
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    [[nodiscard]] bool valid() const { return valid_; }

   private:
    friend class FrameSealer;
    std::uint64_t number_ = 0;
    KeyedTag payload_ = {};
    bool sealed_payload_ = false;
    bool valid_ = false;
  };
  // Headers must be sealed and sent in the order of their tickets.
  [[nodiscard]] Ticket next();

  // `out`: as long as `plain`; it may be the same memory. Not for frames without a payload.
  void seal_payload(Ticket& ticket, std::span<const std::byte> plain, std::span<std::byte> out);
  [[nodiscard]] SealedHeader seal_header(Ticket ticket, const Frame& frame);

 private:
  RecordCipher cipher_;
  std::uint64_t next_ = 0;
  std::uint64_t next_header_ = 0;
};

// Opens the frames that a FrameSealer with the same secret sealed, in their order.
class FrameOpener {
 public:
  explicit FrameOpener(const StreamSecret& secret, std::uint64_t records_per_key = kRecordsPerKey)
      : cipher_(secret, RecordCipher::Direction::kOpen, records_per_key) {}

  // kChecksum: this is not the header that the other end sealed next. Nothing after it can be
  // opened.
  [[nodiscard]] WireError open_header(std::span<const std::byte, kSealedFrameSize> bytes,
                                      Frame& out);
  // Opens the next bytes of the last frame's payload. `out`: as long as `sealed`; it may be the
  // same memory. Nothing of it may be used before end_payload() has returned true.
  void open_payload(std::span<const std::byte> sealed, std::span<std::byte> out);
  // All bytes of the payload were opened. False: it is not what the other end sealed.
  [[nodiscard]] bool end_payload();

 private:
  RecordCipher cipher_;
  std::uint64_t next_ = 0;
  KeyedTag due_ = {};        // the tag that the payload must have
  bool in_payload_ = false;  // some of it was opened
};

// Both directions of a stream at one of its ends.
struct StreamSeal {
  StreamSeal(const StreamSecret& own, const StreamSecret& others) : out(own), in(others) {}
  FrameSealer out;
  FrameOpener in;
};

}  // namespace thalweg::wire
