// Frames: what two ranks of a communicator send to each other on a stream. A frame is a header and
// a payload. Unless the kind says otherwise, the header's fields are:
//
//   offset bytes field
//   0      1     version of the frames
//   1      1     kind (FrameKind)
//   2      2     kHello: how the frames that follow on the stream, both ways, are checked
//                (FrameCheck); all others: 0
//   4      4     operation: counts the operations of the communicator, from 1
//   8      4     index: which arrival of the operation at the receiver the payload belongs to
//                (kData)
//   12     4     length of the payload
//   16     8     signature of the operation: equal if both ranks make the same call
//   24     4     started: the last operation that the sender has started
//   28     4     rank: its meaning depends on the kind
//
// In shared memory, and on streams with FrameCheck::kNone, that is the header. On streams with
// FrameCheck::kChecksum, and in every hello but a sealed one, two CRC-32C follow:
//
//   32     4     of the payload
//   36     4     of the header's first 36 bytes
//
// On streams with FrameCheck::kSealed, all frames are encrypted (wire/sealed_frame.h).
//
// A receiver uses no field before it has checked the header, and no byte of a payload before it has
// checked all of it. So a byte that changed on the way goes nowhere, not even to another rank that
// the receiver sends its sums to while they arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/checksum.h"
#include "wire/wire.h"

namespace thalweg::wire {

// The version of frames and their headers. Other parts of the protocol have kWireVersion.
inline constexpr std::uint8_t kFrameVersion = 5;

// How the frames of a stream are checked.
enum class FrameCheck : std::uint8_t { kNone, kChecksum, kSealed };
inline constexpr int kFrameCheckCount = 3;

enum class FrameKind : std::uint8_t {
  // The first frame of every stream. signature: identifies the job and the group; rank: the
  // sender's rank; index: the number of ranks; operation: kMessageStream; kLaneStream, and
  // `started`
  // is the lane's number; kMovedStream, and `started` is the number of a stream that goes on here;
  // or 0, and `started` is the number of streams that the two ranks will have.
  kHello,
  // payload: the next bytes of a transfer; rank: 0.
  kData,
  // Carries only `started`.
  kStarted,
  // Asks whether the peer is alive, and how far it is in `operation`; payload: the sender's call of
  // `operation`, as text.
  kAsk,
  // The answer. rank: the rank that the sender waits for, or kNoFrameRank; payload: the sender's
  // call of `operation`, as text.
  kAnswer,
  // The communicator is broken. rank: the rank to blame, or kNoFrameRank; index: the ErrorCode;
  // payload: why, as text.
  kAbort,
  // The sender leaves; nothing follows.
  kLeave,
  // Offers shared memory. operation: the process; index: its file descriptor; signature: the file's
  // label.
  kOffer,
  // All that follows comes through the shared memory; further bytes on the stream only wake the
  // receiver.
  kShared,
  // The next three are frames of message streams; operation: the number of the message.
  // Announces a message. index: its tag; signature: elements; rank: their type; started: 1 if the
  // payload holds the message's bytes.
  kMessage,
  // A message that came with its bytes was received.
  kTaken,
  // Answers a message that came without its bytes. rank 0: send them; rank 1: it is refused, for
  // the reason in the payload.
  kAccept,
  // Like kData, but the payload is the next on another stream, the lane number `rank`.
  kLaneData,
  // Between the two ends of a kMovedStream. started: the stream; signature: how many of its bytes
  // the sender has received.
  kResume,
};
inline constexpr int kFrameKindCount = 14;
inline constexpr std::uint32_t kFirstStream = 0;
inline constexpr std::uint32_t kMessageStream = 1;
inline constexpr std::uint32_t kLaneStream = 2;
inline constexpr std::uint32_t kMovedStream = 3;
// The highest number of a lane.
inline constexpr std::uint32_t kMaxLane = 255;

struct Frame {
  FrameKind kind = FrameKind::kData;
  std::uint32_t operation = 0;
  std::uint32_t index = 0;
  std::uint32_t length = 0;
  std::uint64_t signature = 0;
  std::uint32_t started = 0;
  std::uint32_t rank = 0;
  FrameCheck check = FrameCheck::kNone;  // of kHello
  bool operator==(const Frame&) const = default;
};
inline constexpr std::uint32_t kNoFrameRank = ~std::uint32_t{0};
inline constexpr std::size_t kFrameSize = 32;
// The most payload bytes of kData and kLaneData (kMaxFrameData), and of all other frames.
inline constexpr std::uint32_t kMaxFrameText = 4096;
inline constexpr std::uint32_t kMaxFrameData = 1U << 30;
// With checksums or sealed, a data frame is at most this long, because its receiver keeps all of it
// until it is checked.
inline constexpr std::uint32_t kMaxCheckedData = 1U << 20;
inline constexpr std::size_t kCheckedFrameSize = kFrameSize + kHeaderChecksSize;

[[nodiscard]] std::array<std::byte, kFrameSize> encode_frame(const Frame& frame);
[[nodiscard]] WireError decode_frame(std::span<const std::byte, kFrameSize> bytes, Frame& out);

// The same with checksums. `payload`: the checksum of the payload; 0 if there is none.
[[nodiscard]] std::array<std::byte, kCheckedFrameSize> encode_checked_frame(const Frame& frame,
                                                                            std::uint32_t payload);
// kChecksum: the header changed on its way.
[[nodiscard]] WireError decode_checked_frame(std::span<const std::byte, kCheckedFrameSize> bytes,
                                             Frame& out, std::uint32_t& payload);

}  // namespace thalweg::wire
