#include "wire/control_message.h"

#include <limits>

#include "base/check.h"
#include "base/segment_tag.h"
#include "wire/byte_io.h"
#include "wire/checksum.h"

namespace thalweg::wire {
namespace {

constexpr std::uint8_t kKeyedControl = 1;
constexpr std::uint8_t kCheckedControl = 2;

// Bytes after the body.
std::size_t end_size(const ControlEnvelope& about) {
  return about.keyed ? kKeyedTagSize : about.checked ? kChecksumSize : 0;
}
constexpr std::uint32_t kBillion = 1'000'000'000;
constexpr std::uint32_t kMaxControlSegment = std::numeric_limits<std::int32_t>::max();

// The kind on the wire is the index in the variant, counted from 1.
constexpr std::size_t kKinds = std::variant_size_v<ControlMessage>;
template <class Message, std::size_t I = 0>
constexpr std::uint8_t kind_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, ControlMessage>, Message>) {
    return I + 1;
  } else {
    return kind_of<Message, I + 1>();
  }
}
static_assert(kind_of<ReadyMessage>() == 1 && kind_of<StopMessage>() == 2 &&
              kind_of<ResendMessage>() == 3 && kind_of<FinishMessage>() == 4 &&
              kind_of<ConfirmMessage>() == 5 && kind_of<CancelMessage>() == 6 &&
              kind_of<ReportMessage>() == 7 && kind_of<GrantMessage>() == 8 &&
              kind_of<WantMessage>() == 9);

// Bodies: the bytes between the common header and the keyed tag. Each message has functions for its
// size, its encoding and its decoding. Decoders return an error, except for bodies that are too
// short: the reader notes those.
constexpr std::size_t kReadyBody = 8 + 8 + 4 + 4 + 1;
constexpr std::size_t kReadyFirst = 4;
constexpr std::size_t kStopBody = 4 + 8 + 4 + 1;
constexpr std::size_t kResendBody = 4 + 1 + 2;
constexpr std::size_t kRangeSize = 4 + 4;
constexpr std::size_t kFinishBody = 4;
constexpr std::size_t kCancelBody = 1 + 1 + 2;
constexpr std::size_t kReportBody = 6 * 4 + 8;
constexpr std::size_t kReportPath = 4 + 2;
constexpr std::size_t kGrantBody = 4;
constexpr std::size_t kWantBody = 4 + 4 + 1;
static_assert(kControlHeaderSize == 4 * 1 + 4 + 8 + 8 + 4);
static_assert(kResendBody <= 8 && kCancelBody + kMaxCancelText <= 8 + kMaxRangesPerMessage * 8);
static_assert(kRangeSize == sizeof(SegmentRange));

std::size_t body_size(const ReadyMessage& m) {
  return kReadyBody + (m.first == kUngranted ? 0 : kReadyFirst);
}
std::size_t body_size(const StopMessage&) { return kStopBody; }
std::size_t body_size(const ResendMessage& m) { return kResendBody + m.ranges.size() * kRangeSize; }
std::size_t body_size(const FinishMessage&) { return kFinishBody; }
std::size_t body_size(const ConfirmMessage&) { return 0; }
std::size_t body_size(const CancelMessage& m) { return kCancelBody + m.text.size(); }
std::size_t body_size(const ReportMessage& m) {
  return kReportBody + (m.paths == 0 ? 0 : 1 + m.paths * kReportPath);
}
std::size_t body_size(const GrantMessage&) { return kGrantBody; }
std::size_t body_size(const WantMessage&) { return kWantBody; }

template <class Message>
std::uint32_t transfer_of(const Message& message) {
  return message.transfer;
}
std::uint32_t transfer_of(const ReportMessage&) { return 0; }

void encode_body(const ReadyMessage& message, ByteWriter& out) {
  CHECK(message.bound_ppb < kBillion);
  out.put(message.key);
  out.put(message.tensor_bytes);
  out.put(message.segment_bytes);
  out.put(message.bound_ppb);
  out.put(static_cast<std::uint8_t>(message.type));
  if (message.first == kUngranted) return;
  CHECK(message.first <= kMaxControlSegment);
  out.put(message.first);
}

WireError decode_body(ByteReader& in, ReadyMessage& out) {
  out.key = in.get<std::uint64_t>();
  out.tensor_bytes = in.get<std::uint64_t>();
  out.segment_bytes = in.get<std::uint32_t>();
  out.bound_ppb = in.get<std::uint32_t>();
  const auto type = in.get<std::uint8_t>();
  if (out.bound_ppb >= kBillion || type >= kDTypeCount) return WireError::kField;
  out.type = static_cast<DType>(type);
  if (!in.ok() || in.left() == 0) return WireError::kNone;
  out.first = in.get<std::uint32_t>();
  return out.first <= kMaxControlSegment ? WireError::kNone : WireError::kField;
}

void encode_body(const StopMessage& message, ByteWriter& out) {
  CHECK(message.queue < kPriorityCount);
  out.put(message.round);
  out.put(message.end_sequence);
  out.put(message.last_sent_us);
  out.put(message.queue);
}

WireError decode_body(ByteReader& in, StopMessage& out) {
  out.round = in.get<std::uint32_t>();
  out.end_sequence = in.get<std::uint64_t>();
  out.last_sent_us = in.get<std::uint32_t>();
  out.queue = in.get<std::uint8_t>();
  return out.queue < kPriorityCount ? WireError::kNone : WireError::kField;
}

void encode_body(const ResendMessage& message, ByteWriter& out) {
  CHECK(message.ranges.size() <= kMaxRangesPerMessage);
  out.put(message.round);
  out.put(static_cast<std::uint8_t>(message.last ? 1 : 0));
  out.put(static_cast<std::uint16_t>(message.ranges.size()));
  for (const SegmentRange& range : message.ranges) {
    out.put(range.first);
    out.put(range.count);
  }
}

WireError decode_body(ByteReader& in, ResendMessage& out) {
  out.round = in.get<std::uint32_t>();
  const auto last = in.get<std::uint8_t>();
  const auto count = in.get<std::uint16_t>();
  if (last > 1) return WireError::kReserved;
  out.last = last == 1;
  if (count > kMaxRangesPerMessage) return WireError::kField;
  if (in.left() != count * kRangeSize) return WireError::kLength;
  out.ranges.resize(count);
  for (SegmentRange& range : out.ranges) {
    range.first = in.get<std::uint32_t>();
    range.count = in.get<std::uint32_t>();
    if (range.first > kMaxControlSegment || range.count == 0) return WireError::kField;
    if (range.count > kMaxControlSegment - range.first) return WireError::kField;
  }
  return WireError::kNone;
}

void encode_body(const FinishMessage& message, ByteWriter& out) { out.put(message.arrived); }

WireError decode_body(ByteReader& in, FinishMessage& out) {
  out.arrived = in.get<std::uint32_t>();
  return WireError::kNone;
}

void encode_body(const ConfirmMessage& /*message*/, ByteWriter& /*out*/) {}

WireError decode_body(ByteReader& /*in*/, ConfirmMessage& /*out*/) { return WireError::kNone; }

void encode_body(const CancelMessage& message, ByteWriter& out) {
  CHECK(message.text.size() <= kMaxCancelText);
  out.put(static_cast<std::uint8_t>(message.from_receiver ? 1 : 0));
  out.put(static_cast<std::uint8_t>(message.reason));
  out.put(static_cast<std::uint16_t>(message.text.size()));
  out.put_text(message.text);
}

WireError decode_body(ByteReader& in, CancelMessage& out) {
  const auto role = in.get<std::uint8_t>();
  const auto reason = in.get<std::uint8_t>();
  const auto length = in.get<std::uint16_t>();
  if (role > 1) return WireError::kReserved;
  if (reason >= kCancelReasonCount || length > kMaxCancelText) return WireError::kField;
  out.from_receiver = role == 1;
  out.reason = static_cast<CancelReason>(reason);
  out.text = in.get_text(length);
  return WireError::kNone;
}

void encode_body(const ReportMessage& message, ByteWriter& out) {
  out.put(message.first_sent_us);
  out.put(message.last_sent_us);
  out.put(message.received_window_ns);
  out.put(message.packets_sent);
  out.put(message.packets_received);
  out.put(message.packets_marked);
  out.put(message.bytes_received);
  CHECK(message.paths <= kMaxReportPaths);
  if (message.paths == 0) return;
  out.put(message.paths);
  for (std::size_t i = 0; i < message.paths; ++i) {
    out.put(message.path_packets[i]);
    out.put(message.path_delay_us[i]);
  }
}

WireError decode_body(ByteReader& in, ReportMessage& out) {
  out.first_sent_us = in.get<std::uint32_t>();
  out.last_sent_us = in.get<std::uint32_t>();
  out.received_window_ns = in.get<std::uint32_t>();
  out.packets_sent = in.get<std::uint32_t>();
  out.packets_received = in.get<std::uint32_t>();
  out.packets_marked = in.get<std::uint32_t>();
  out.bytes_received = in.get<std::uint64_t>();
  if (!in.ok() || in.left() == 0) return WireError::kNone;
  out.paths = in.get<std::uint8_t>();
  if (out.paths == 0 || out.paths > kMaxReportPaths) return WireError::kField;
  for (std::size_t i = 0; i < out.paths; ++i) {
    out.path_packets[i] = in.get<std::uint32_t>();
    out.path_delay_us[i] = in.get<std::uint16_t>();
  }
  return WireError::kNone;
}

void encode_body(const GrantMessage& message, ByteWriter& out) {
  CHECK(message.segments <= kMaxControlSegment);
  out.put(message.segments);
}

WireError decode_body(ByteReader& in, GrantMessage& out) {
  out.segments = in.get<std::uint32_t>();
  return out.segments <= kMaxControlSegment ? WireError::kNone : WireError::kField;
}

void encode_body(const WantMessage& message, ByteWriter& out) {
  CHECK(message.sent <= message.granted && message.granted <= kMaxControlSegment);
  out.put(message.sent);
  out.put(message.granted);
  out.put(static_cast<std::uint8_t>(message.busy ? 1 : 0));
}

WireError decode_body(ByteReader& in, WantMessage& out) {
  out.sent = in.get<std::uint32_t>();
  out.granted = in.get<std::uint32_t>();
  const auto busy = in.get<std::uint8_t>();
  if (busy > 1) return WireError::kReserved;
  out.busy = busy == 1;
  const bool sane = out.sent <= out.granted && out.granted <= kMaxControlSegment;
  return sane ? WireError::kNone : WireError::kField;
}

template <class Message>
WireError decode_as(ByteReader& body, std::uint32_t transfer, ControlMessage& out) {
  Message message;
  if constexpr (std::is_same_v<Message, ReportMessage>) {
    if (transfer != 0) return WireError::kReserved;
  } else {
    message.transfer = transfer;
  }
  if (const WireError error = decode_body(body, message); error != WireError::kNone) return error;
  if (!body.ok() || body.left() != 0) return WireError::kLength;
  out = std::move(message);
  return WireError::kNone;
}

// Calls the decoder of the `kind`-th message by a fold over the variant.
template <std::size_t... I>
WireError decode_kind(std::size_t kind, ByteReader& body, std::uint32_t transfer,
                      ControlMessage& out, std::index_sequence<I...> /*all*/) {
  WireError error = WireError::kKind;
  ((I + 1 == kind ? void(error = decode_as<std::variant_alternative_t<I, ControlMessage>>(
                             body, transfer, out))
                  : void()),
   ...);
  return error;
}

}  // namespace

std::size_t control_size(const ControlMessage& message, const ControlEnvelope& about) {
  return kControlHeaderSize + std::visit([](const auto& m) { return body_size(m); }, message) +
         end_size(about);
}

void encode_control(const ControlMessage& message, const ControlEnvelope& about,
                    std::span<std::byte> out) {
  const std::size_t size = control_size(message, about);
  ByteWriter writer(out.first(size));
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint8_t>(message.index() + 1));
  CHECK(!about.keyed || !about.checked);
  writer.put(about.keyed ? kKeyedControl : about.checked ? kCheckedControl : std::uint8_t{0});
  writer.put(std::uint8_t{0});
  writer.put(static_cast<std::uint32_t>(size));
  writer.put(about.job);
  writer.put(about.sequence);
  std::visit(
      [&](const auto& m) {
        writer.put(transfer_of(m));
        encode_body(m, writer);
      },
      message);
  if (about.keyed) writer.put_text(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
  if (about.checked) writer.put(std::uint32_t{0});
  CHECK(writer.ok() && writer.used() == size);
  if (about.checked) put_checksum(out.first(size));
}

WireError peek_control(std::span<const std::byte> stream, std::size_t& size) {
  constexpr std::size_t kUpToLength = 8;
  if (stream.size() < kUpToLength) return WireError::kShort;
  ByteReader reader(stream.first(kUpToLength));
  if (reader.get<std::uint8_t>() != kWireVersion) return WireError::kVersion;
  const auto kind = reader.get<std::uint8_t>();
  if (kind == 0 || kind > kKinds) return WireError::kKind;
  const auto flags = reader.get<std::uint8_t>();
  if (flags > kCheckedControl || reader.get<std::uint8_t>() != 0) return WireError::kReserved;
  const auto length = reader.get<std::uint32_t>();
  if (length > kMaxControlSize) return WireError::kLength;
  if (length < kControlHeaderSize + end_size({.keyed = flags == kKeyedControl,
                                              .checked = flags == kCheckedControl})) {
    return WireError::kLength;
  }
  size = length;
  return WireError::kNone;
}

WireError decode_control(std::span<const std::byte> bytes, ControlMessage& message,
                         ControlEnvelope& about) {
  std::size_t size = 0;
  if (const WireError error = peek_control(bytes, size); error != WireError::kNone) return error;
  if (bytes.size() < size) return WireError::kShort;
  if (bytes.size() > size) return WireError::kLength;
  ByteReader header(bytes.first(kControlHeaderSize));
  header.get<std::uint8_t>();
  const auto kind = header.get<std::uint8_t>();
  const auto flags = header.get<std::uint8_t>();
  about.keyed = flags == kKeyedControl;
  about.checked = flags == kCheckedControl;
  if (about.checked && !(has_checksum(bytes) && checksum_holds(bytes))) return WireError::kChecksum;
  header.get<std::uint8_t>();
  header.get<std::uint32_t>();
  about.job = header.get<std::uint64_t>();
  about.sequence = header.get<std::uint64_t>();
  const auto transfer = header.get<std::uint32_t>();
  ByteReader body(bytes.subspan(kControlHeaderSize, size - kControlHeaderSize - end_size(about)));
  return decode_kind(kind, body, transfer, message, std::make_index_sequence<kKinds>{});
}

}  // namespace thalweg::wire
