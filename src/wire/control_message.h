// The signals of DLCP (section 3.2.1 of the paper): typed values, and their bytes on a reliable,
// ordered stream.
//
// The number that its receiver gave it names a transfer. "The receiver" and "the sender" are those
// of the transfer; the transfers of both directions share one stream.
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

namespace thalweg::wire {

inline constexpr std::uint32_t kUngranted = ~std::uint32_t{0};

// Receiver to sender: memory is ready. The fields must agree with what the sender has.
struct ReadyMessage {
  std::uint32_t transfer = 0;
  std::uint64_t key = 0;  // names the tensor; the same at both ends
  std::uint64_t tensor_bytes = 0;
  std::uint32_t segment_bytes = 0;
  std::uint32_t bound_ppb = 0;  // segments that may be missing, in parts of 10^9; below 10^9
  DType type = DType::kFloat32;
  // Segments that may leave before the first grant. kUngranted: all, because this receiver gives no
  // grants; the wire then does not carry the field.
  std::uint32_t first = kUngranted;
  bool operator==(const ReadyMessage&) const = default;
};

// Sender to receiver: everything of this round has been sent.
struct StopMessage {
  std::uint32_t transfer = 0;
  std::uint32_t round = 0;         // 0: first transmission; n: answer to the n-th request
  std::uint64_t end_sequence = 0;  // above the sequence numbers of all its packets
  std::uint32_t last_sent_us = 0;  // wire_clock() of the last packet
  // The least urgent queue of its packets (SegmentTag::priority).
  std::uint8_t queue = 0;
  bool operator==(const StopMessage&) const = default;
};

struct SegmentRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // at least 1; first + count is below 2^31
  bool operator==(const SegmentRange&) const = default;
};
inline constexpr std::size_t kMaxRangesPerMessage = 256;

// Receiver to sender: send these segments again. A request may take several messages of one round.
struct ResendMessage {
  std::uint32_t transfer = 0;
  std::uint32_t round = 0;  // 1 for the first request
  bool last = true;         // this message completes the request
  std::vector<SegmentRange> ranges;
  bool operator==(const ResendMessage&) const = default;
};

// Receiver to sender: enough has arrived.
struct FinishMessage {
  std::uint32_t transfer = 0;
  std::uint32_t arrived = 0;  // segments
  bool operator==(const FinishMessage&) const = default;
};

// Sender to receiver, in answer to a finish: no more will be sent.
struct ConfirmMessage {
  std::uint32_t transfer = 0;
  bool operator==(const ConfirmMessage&) const = default;
};

enum class CancelReason : std::uint8_t { kCancelled, kDeadline, kMismatch, kLimit };
inline constexpr int kCancelReasonCount = 4;
inline constexpr std::size_t kMaxCancelText = 512;

// Sender to receiver or receiver to sender: the transfer has failed, and why.
struct CancelMessage {
  std::uint32_t transfer = 0;
  bool from_receiver = false;
  CancelReason reason = CancelReason::kCancelled;
  std::string text;  // at most kMaxCancelText bytes
  bool operator==(const CancelMessage&) const = default;
};

inline constexpr std::uint16_t kNoPathDelay = 0xffff;
inline constexpr std::uint16_t kMostPathDelay = kNoPathDelay - 1;

// Receiver to sender, about all transfers between the two: how many packets between two edges
// arrived. The edges are packets that arrived in the order in which they were sent; what was sent
// and what was received are both counted between them.
inline constexpr std::size_t kMaxReportPaths = 32;
struct ReportMessage {
  std::uint32_t first_sent_us = 0;       // wire_clock() of the first edge
  std::uint32_t last_sent_us = 0;        // wire_clock() of the last edge
  std::uint32_t received_window_ns = 0;  // time between the arrivals of the edges
  std::uint32_t packets_sent = 0;        // by the sequence numbers of the edges
  std::uint32_t packets_received = 0;
  std::uint32_t packets_marked = 0;  // received packets that a switch marked as congested
  std::uint64_t bytes_received = 0;  // payload
  // path_packets[i], for i < paths: the received packets that took path i. path_delay_us[i]: how
  // much longer they took on average than the fastest of that path, at most kMostPathDelay;
  // kNoPathDelay: not known. With 0 paths all packets took the first, and the wire carries none of
  // these fields.
  std::uint8_t paths = 0;
  std::array<std::uint32_t, kMaxReportPaths> path_packets = {};
  std::array<std::uint16_t, kMaxReportPaths> path_delay_us = {};
  bool operator==(const ReportMessage&) const = default;
};

// Receiver to sender: so many segments of the first round may have left, in all. Grants of a
// transfer never fall, so a lower one is old.
struct GrantMessage {
  std::uint32_t transfer = 0;
  std::uint32_t segments = 0;  // below 2^31
  bool operator==(const GrantMessage&) const = default;
};

// Sender to receiver: grants are wanted.
struct WantMessage {
  std::uint32_t transfer = 0;
  std::uint32_t sent = 0;     // segments of the first round that have left; at most `granted`
  std::uint32_t granted = 0;  // the highest grant that came, or the first burst; below 2^31
  bool busy = false;          // the sender's own link is the bottleneck: its grants need no limit
  bool operator==(const WantMessage&) const = default;
};

using ControlMessage =
    std::variant<ReadyMessage, StopMessage, ResendMessage, FinishMessage, ConfirmMessage,
                 CancelMessage, ReportMessage, GrantMessage, WantMessage>;

// The fields that every message on the stream has besides its own.
struct ControlEnvelope {
  JobToken job = 0;
  std::uint64_t sequence = 0;  // counts the messages to one peer; never repeats
  // How the message ends: with a KeyedTag, with a checksum, or, in recordings, with neither.
  bool keyed = false;
  bool checked = false;
  bool operator==(const ControlEnvelope&) const = default;
};

inline constexpr std::size_t kControlHeaderSize = 28;
// The most bytes of a whole message, keyed tag or checksum included.
inline constexpr std::size_t kMaxControlSize =
    kControlHeaderSize + 8 + kMaxRangesPerMessage * 8 + kKeyedTagSize;

// Bytes of the encoded message, keyed tag or checksum included.
[[nodiscard]] std::size_t control_size(const ControlMessage& message, const ControlEnvelope& about);

// Writes control_size() bytes; those of the keyed tag are zero, and the caller fills them in.
// Requires room for them, and fields within the limits above.
void encode_control(const ControlMessage& message, const ControlEnvelope& about,
                    std::span<std::byte> out);

// Gives the size of the message at the front of the stream. Returns kShort if more bytes are needed
// to tell; after any other error the stream makes no sense from here on.
[[nodiscard]] WireError peek_control(std::span<const std::byte> stream, std::size_t& size);

// Reads exactly one message. On anything but kNone, the caller ignores the outputs.
[[nodiscard]] WireError decode_control(std::span<const std::byte> bytes, ControlMessage& message,
                                       ControlEnvelope& about);

}  // namespace thalweg::wire
