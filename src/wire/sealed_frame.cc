#include "wire/sealed_frame.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kCovered = kFrameSize + kKeyedTagSize;

constexpr std::uint64_t header_record(std::uint64_t frame) { return 2 * frame; }
constexpr std::uint64_t payload_record(std::uint64_t frame) { return 2 * frame + 1; }

}  // namespace

FrameSealer::Ticket FrameSealer::next() {
  Ticket ticket;
  ticket.number_ = next_++;
  ticket.valid_ = true;
  return ticket;
}

void FrameSealer::seal_payload(Ticket& ticket, std::span<const std::byte> plain,
                               std::span<std::byte> out) {
  CHECK(ticket.valid_ && !ticket.sealed_payload_ && !plain.empty());
  ticket.sealed_payload_ = true;
  ticket.payload_ = cipher_.seal(payload_record(ticket.number_), plain, out);
}

SealedHeader FrameSealer::seal_header(Ticket ticket, const Frame& frame) {
  CHECK(ticket.valid_ && ticket.number_ == next_header_);
  CHECK(ticket.sealed_payload_ == (frame.length > 0) && frame.length <= kMaxCheckedData);
  ++next_header_;
  SealedHeader bytes{};
  const std::span<std::byte> covered = std::span(bytes).first<kCovered>();
  std::ranges::copy(encode_frame(frame), bytes.begin());
  std::ranges::copy(ticket.payload_, bytes.begin() + kFrameSize);
  const KeyedTag tag = cipher_.seal(header_record(ticket.number_), covered, covered);
  std::ranges::copy(tag, bytes.begin() + kCovered);
  return bytes;
}

WireError FrameOpener::open_header(std::span<const std::byte, kSealedFrameSize> bytes, Frame& out) {
  std::array<std::byte, kCovered> plain;
  cipher_.begin_open(header_record(next_));
  cipher_.open_part(bytes.first<kCovered>(), plain);
  KeyedTag tag;
  std::ranges::copy(bytes.last<kKeyedTagSize>(), tag.begin());
  if (!cipher_.end_open(tag)) return WireError::kChecksum;
  ++next_;
  in_payload_ = false;
  const std::span<const std::byte, kCovered> all(plain);
  std::ranges::copy(all.last<kKeyedTagSize>(), due_.begin());
  const WireError error = decode_frame(all.first<kFrameSize>(), out);
  if (error == WireError::kNone && out.length > kMaxCheckedData) return WireError::kLength;
  return error;
}

void FrameOpener::open_payload(std::span<const std::byte> sealed, std::span<std::byte> out) {
  CHECK(next_ > 0);
  if (!std::exchange(in_payload_, true)) cipher_.begin_open(payload_record(next_ - 1));
  cipher_.open_part(sealed, out);
}

bool FrameOpener::end_payload() {
  CHECK(in_payload_);
  in_payload_ = false;
  return cipher_.end_open(due_);
}

}  // namespace thalweg::wire
