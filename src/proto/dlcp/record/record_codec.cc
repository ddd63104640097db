#include "proto/dlcp/record/record_codec.h"

#include <fmt/core.h>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::proto {
namespace {

constexpr std::string_view kMagic = "TLWR";
constexpr std::uint8_t kVersion = 5;
constexpr std::size_t kStartSize = 8;
constexpr std::size_t kBlockHeader = 4 + 8;
constexpr unsigned kGroup = 7;
constexpr std::uint8_t kMore = 0x80;

// FNV-1a. It tells a damaged file from an endpoint that answers differently.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

const char* name_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kEnd:
      return "end";
    case RecordKind::kStartSend:
      return "start_send";
    case RecordKind::kStartRecv:
      return "start_recv";
    case RecordKind::kCancel:
      return "cancel";
    case RecordKind::kConnectionLost:
      return "connection_lost";
    case RecordKind::kData:
      return "on_data";
    case RecordKind::kControl:
      return "on_control";
    case RecordKind::kTimeout:
      return "on_timeout";
    case RecordKind::kPollData:
      return "poll_data";
    case RecordKind::kPollControl:
      return "poll_control";
    case RecordKind::kPollEvent:
      return "poll_event";
    case RecordKind::kNextTimeout:
      return "next_timeout";
    case RecordKind::kNextTimer:
      return "next_timer";
    case RecordKind::kSetPaths:
      return "set_paths";
    case RecordKind::kDataEnd:
      return "on_data_end";
    case RecordKind::kOffer:
      return "offer";
  }
  return "?";
}

void RecordEncoder::number(std::uint64_t value) {
  for (; value >= kMore; value >>= kGroup) {
    bytes_.push_back(static_cast<std::byte>((value & (kMore - 1)) | kMore));
  }
  bytes_.push_back(static_cast<std::byte>(value));
}

void RecordEncoder::text(std::string_view text) {
  number(text.size());
  const auto bytes = std::as_bytes(std::span(text));
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void RecordEncoder::delta(RecordDelta what, std::uint64_t value) {
  std::uint64_t& last = last_[static_cast<std::size_t>(what)];
  number(fold(static_cast<std::int64_t>(value - last)));
  last = value;
}

void RecordEncoder::message(const wire::ControlMessage& message) {
  const std::size_t size = wire::control_size(message, {});
  number(size);
  bytes_.resize(bytes_.size() + size);
  wire::encode_control(message, {}, std::span(bytes_).last(size));
}

std::uint64_t RecordDecoder::number() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; ok_; shift += kGroup) {
    const auto byte = static_cast<std::uint64_t>(next());
    const std::uint64_t part = byte & (kMore - 1);
    // At most ten bytes and no superfluous one, so that each number has one encoding.
    if (shift > 63 || (part << shift >> shift) != part || (byte == 0 && shift > 0)) ok_ = false;
    if (!ok_) return 0;
    value |= part << shift;
    if (byte < kMore) return value;
  }
  return 0;
}

std::string RecordDecoder::text() {
  const std::uint64_t size = number();
  if (size > in_.size() - used_) ok_ = false;
  if (!ok_) return {};
  std::string text(static_cast<std::size_t>(size), '\0');
  for (char& c : text) c = static_cast<char>(next());
  return text;
}

std::uint64_t RecordDecoder::delta(RecordDelta what) {
  std::int64_t difference = 0;
  field(difference);
  std::uint64_t& last = last_[static_cast<std::size_t>(what)];
  last += static_cast<std::uint64_t>(difference);
  return ok_ ? last : 0;
}

Time RecordDecoder::time() {
  const auto ps = static_cast<std::int64_t>(delta(RecordDelta::kTime));
  return Time::at(Duration::picoseconds(ps));
}

wire::ControlMessage RecordDecoder::message() {
  const std::uint64_t size = number();
  wire::ControlMessage message;
  wire::ControlEnvelope about;
  if (!ok_ || size > in_.size() - used_ ||
      wire::decode_control(in_.subspan(used_, static_cast<std::size_t>(size)), message, about) !=
          wire::WireError::kNone ||
      about != wire::ControlEnvelope()) {
    ok_ = false;
    return {};
  }
  used_ += static_cast<std::size_t>(size);
  return message;
}

std::vector<std::byte> recording_start() {
  std::vector<std::byte> bytes(kStartSize);
  wire::ByteWriter writer(bytes);
  writer.put_text(kMagic);
  writer.put(kVersion);
  return bytes;
}

void append_block(std::span<const std::byte> content, std::vector<std::byte>& file) {
  CHECK(content.size() <= kMaxRecordBlock);
  file.resize(file.size() + kBlockHeader);
  wire::ByteWriter writer{std::span(file).last(kBlockHeader)};
  writer.put(static_cast<std::uint32_t>(content.size()));
  writer.put(checksum(content));
  file.insert(file.end(), content.begin(), content.end());
}

Result<std::vector<std::byte>> recording_content(std::span<const std::byte> file) {
  wire::ByteReader start(file.first(std::min(file.size(), kStartSize)));
  if (start.get_text(kMagic.size()) != kMagic) return Error("this is no recording of Thalweg");
  if (const auto version = start.get<std::uint8_t>(); version != kVersion) {
    return Error(fmt::format("a recording of version {}: only {} is known", version, kVersion));
  }
  if (start.get<std::uint16_t>() != 0 || start.get<std::uint8_t>() != 0 || !start.ok()) {
    return Error("the first bytes of the recording are damaged");
  }
  std::vector<std::byte> content;
  std::span<const std::byte> left = file.subspan(kStartSize);
  for (std::uint64_t block = 1; !left.empty(); ++block) {
    wire::ByteReader header(left.first(std::min(left.size(), kBlockHeader)));
    const auto size = header.get<std::uint32_t>();
    const auto expected = header.get<std::uint64_t>();
    if (!header.ok() || left.size() - kBlockHeader < size) {
      return Error(fmt::format("block {} of the recording is cut off", block));
    }
    const auto bytes = left.subspan(kBlockHeader, size);
    if (checksum(bytes) != expected) {
      return Error(fmt::format("block {} of the recording is damaged", block));
    }
    content.insert(content.end(), bytes.begin(), bytes.end());
    left = left.subspan(kBlockHeader + size);
  }
  return content;
}

}  // namespace thalweg::proto
