// The signals of DLCP (section 3.2.1 of the paper): typed values, and their bytes on a reliable,
// ordered stream.
//
// A transfer is known by the number that its receiver gave it. "The receiver" and "the sender" are
// those of the transfer; both directions share one stream each way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <thalweg/types.h>

#include "wire/wire.h"

namespace thalweg {

// Receiver to sender: memory is ready. What it expects must be what the sender has.
struct ReadyMessage {
  std::uint32_t transfer = 0;
  std::uint64_t key = 0;  // names the tensor; the same at both ends
  std::uint64_t tensor_bytes = 0;
  std::uint32_t segment_bytes = 0;
  std::uint32_t bound_ppb = 0;  // segments that may be missing, in parts of 10^9; below 10^9
  DType type = DType::kFloat32;
  bool operator==(const ReadyMessage&) const = default;
};

// Sender to receiver: everything of this round has been sent.
struct StopMessage {
  std::uint32_t transfer = 0;
  std::uint32_t round = 0;         // 0: first transmission; n: answer to the n-th request
  std::uint64_t end_sequence = 0;  // above the sequence numbers of all its packets
  std::uint32_t last_sent_us = 0;  // wire_clock() of the last one
  bool operator==(const StopMessage&) const = default;
};

struct SegmentRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // at least 1; first + count is below 2^31
  bool operator==(const SegmentRange&) const = default;
};
inline constexpr std::size_t kMaxRangesPerMessage = 256;

// Receiver to sender: send these again. A request may take several messages of one round.
struct ResendMessage {
  std::uint32_t transfer = 0;
  std::uint32_t round = 0;  // 1 for the first request
  bool last = true;         // completes the request
  std::vector<SegmentRange> ranges;
  bool operator==(const ResendMessage&) const = default;
};

// Receiver to sender: enough has arrived.
struct FinishMessage {
  std::uint32_t transfer = 0;
  std::uint32_t arrived = 0;  // segments
  bool operator==(const FinishMessage&) const = default;
};

// Sender to receiver, in answer: no more will be sent.
struct ConfirmMessage {
  std::uint32_t transfer = 0;
  bool operator==(const ConfirmMessage&) const = default;
};

enum class CancelReason : std::uint8_t { kCancelled, kDeadline, kMismatch, kLimit };
inline constexpr int kCancelReasonCount = 4;
inline constexpr std::size_t kMaxCancelText = 512;

// Either way: the transfer has failed, and why.
struct CancelMessage {
  std::uint32_t transfer = 0;
  bool from_receiver = false;
  CancelReason reason = CancelReason::kCancelled;
  std::string text;  // at most kMaxCancelText bytes
  bool operator==(const CancelMessage&) const = default;
};

// Receiver to sender, about all transfers between the two: how the packets between two edges fared.
// The edges are packets that arrived in order of sending; both windows lie between them.
inline constexpr std::size_t kMaxReportPaths = 32;
struct ReportMessage {
  std::uint32_t first_sent_us = 0;  // wire_clock() of the edges
  std::uint32_t last_sent_us = 0;
  std::uint32_t received_window_ns = 0;  // between their arrivals
  std::uint32_t packets_sent = 0;        // by their sequence numbers
  std::uint32_t packets_received = 0;
  std::uint32_t packets_marked = 0;  // of these, by switches, as congested
  std::uint64_t bytes_received = 0;  // payload
  // Of packets_received, by the path that they took, the first `paths` of them; 0: all came by the
  // first, and nothing is said on the wire.
  std::uint8_t paths = 0;
  std::array<std::uint32_t, kMaxReportPaths> path_packets = {};
  bool operator==(const ReportMessage&) const = default;
};

using ControlMessage = std::variant<ReadyMessage, StopMessage, ResendMessage, FinishMessage,
                                    ConfirmMessage, CancelMessage, ReportMessage>;

// What surrounds a message on the stream.
struct ControlEnvelope {
  JobToken job = 0;
  std::uint64_t sequence = 0;  // counts the messages to one peer; never repeats
  bool keyed = false;          // the message ends with a KeyedTag
  bool operator==(const ControlEnvelope&) const = default;
};

inline constexpr std::size_t kControlHeaderSize = 28;
// Of a whole message, keyed tag included.
inline constexpr std::size_t kMaxControlSize =
    kControlHeaderSize + 8 + kMaxRangesPerMessage * 8 + kKeyedTagSize;

// Bytes of the encoded message, keyed tag included.
[[nodiscard]] std::size_t control_size(const ControlMessage& message, const ControlEnvelope& about);

// Writes control_size() bytes; those of the keyed tag are zero, for the caller to fill in. Requires
// the room, and fields within the limits above.
void encode_control(const ControlMessage& message, const ControlEnvelope& about,
                    std::span<std::byte> out);

// How long the message is that the stream continues with: kShort when more bytes are needed to
// tell; any other error: the stream makes no sense from here on.
[[nodiscard]] WireError peek_control(std::span<const std::byte> stream, std::size_t& size);

// Reads exactly one message. Anything but kNone: the outputs say nothing.
[[nodiscard]] WireError decode_control(std::span<const std::byte> bytes, ControlMessage& message,
                                       ControlEnvelope& about);

}  // namespace thalweg
