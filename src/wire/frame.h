// What two ranks of a communicator say to each other on a stream: frames, each a header and a
// payload.
//
//   offset bytes field
//   0      1     version of the protocol
//   1      1     kind (FrameKind)
//   2      2     0
//   4      4     operation: counts the operations of the communicator, from 1
//   8      4     slot: which arrival of the operation at the receiver it is a part of (kData)
//   12     4     length of the payload
//   16     8     signature of the operation: equal if it is the same call
//   24     4     started: the last operation that the sender has started
//   28     4     rank, as the kind says
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/wire.h"

namespace thalweg {

enum class FrameKind : std::uint8_t {
  kHello,  // first on every stream; signature: of job and group; rank: the sender; slot: the size;
           // operation: kMessageStream, kLaneStream (then `started` is its number), or 0
  kData,   // payload: the next bytes of a transfer; rank: the core it was sent from, counted
           // from 1, or 0
  kStarted,  // nothing but `started`
  kAsk,      // is anybody there, and where are you in `operation`?
  kAnswer,   // rank: whom the sender waits for, or none; payload: its call of `operation` in words
  kAbort,    // the communicator is broken; rank: by whom; payload: in words
  kLeave,    // the sender leaves; nothing follows
  kOffer,    // memory to share; operation: process; slot: its file; signature: the file's label
  kShared,   // all that follows comes through the shared memory; further bytes mean "look there"
  // On streams of messages; operation: the number of the message.
  kMessage,  // slot: its tag; signature: elements; rank: their type; started: 1 if it has its bytes
  kTaken,    // one with its bytes was received
  kAccept,   // one without: send them; rank 1: never, for the reason in words
  kLaneData,  // kData whose payload is not here but next on another stream, the lane number `rank`
};
inline constexpr int kFrameKindCount = 13;
inline constexpr std::uint32_t kMessageStream = 1;
inline constexpr std::uint32_t kLaneStream = 2;
// Of a lane.
inline constexpr std::uint32_t kMaxLane = 255;

struct Frame {
  FrameKind kind = FrameKind::kData;
  std::uint32_t operation = 0;
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint64_t signature = 0;
  std::uint32_t started = 0;
  std::uint32_t rank = 0;
  bool operator==(const Frame&) const = default;
};
inline constexpr std::uint32_t kNoFrameRank = ~std::uint32_t{0};
inline constexpr std::size_t kFrameSize = 32;
// Of all frames but kData and kLaneData.
inline constexpr std::uint32_t kMaxFrameText = 4096;
inline constexpr std::uint32_t kMaxFrameData = 1U << 30;

[[nodiscard]] std::array<std::byte, kFrameSize> encode_frame(const Frame& frame);
[[nodiscard]] WireError decode_frame(std::span<const std::byte, kFrameSize> bytes, Frame& out);

}  // namespace thalweg
