// Checksums and seals of a connection's frames. A payload is kept until all of it is here and its
// checksum or tag is right, and only then the executor gets it. Otherwise this rank could send
// wrong sums on to others, in frames that are right, before it notices.
#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/group/streams/connection.h"

namespace thalweg::net {
namespace {

// The longest data frame.
constexpr std::size_t kMostFrame = std::size_t{1} << 20;
// The same with checksums, sealed, or with lanes. The bytes of a frame are checked in the caches
// and then used from there, so it is not longer than kMostPartFrame. A rank that sends sums on
// while they arrive waits for a whole frame at every step, and lanes send one each at a time, so a
// transfer is at least kLeastFrames frames, unless they would be tiny.
constexpr std::size_t kMostPartFrame = std::size_t{128} << 10;
constexpr std::size_t kLeastPartFrame = std::size_t{8} << 10;
constexpr std::size_t kLeastFrames = 32;
// Within a host a frame takes microseconds, and what counts is the work for each: a system call,
// and half a microsecond for each record that is sealed.
constexpr std::size_t kLeastFrameWithinHost = std::size_t{64} << 10;

static_assert(kMostPartFrame <= wire::kMaxCheckedData);

}  // namespace

std::size_t Connection::longest_frame(std::size_t transfer) const {
  if (!checks_out() && !has_lanes()) return kMostFrame;
  const std::size_t least = within_host_ ? kLeastFrameWithinHost : kLeastPartFrame;
  return std::clamp(transfer / kLeastFrames, least, kMostPartFrame);
}

void Connection::set_check(wire::FrameCheck check, std::unique_ptr<wire::StreamSeal> seal) {
  CHECK((check == wire::FrameCheck::kSealed) == (seal != nullptr));
  check_ = check;
  seal_ = std::move(seal);
  for (Queued& each : queue_) each.proof = next_proof();
}

Connection::Proof Connection::next_proof() {
  Proof proof;
  if (seals_out()) proof.ticket = seal_->out.next();
  return proof;
}

void Connection::prove_payload(Proof& proof, std::span<const std::byte> payload,
                               std::span<std::byte> out) {
  if (seals_out()) {
    seal_->out.seal_payload(proof.ticket, payload, out);
  } else if (checks_out()) {
    proof.checksum = wire::crc32c(payload);
  }
}

void Connection::prove_data(Proof& proof, std::span<const std::byte> payload,
                            std::vector<std::byte>& sealed) {
  if (seals_out()) sealed.resize(payload.size());
  prove_payload(proof, payload, sealed);
}

void Connection::put_header(const wire::Frame& frame, Proof proof) {
  const auto put = [&](const auto& bytes) {
    std::ranges::copy(bytes, out_header_.begin());
    out_header_size_ = bytes.size();
  };
  if (seals_out()) {
    put(seal_->out.seal_header(std::move(proof.ticket), frame));
  } else if (checks_out()) {
    put(wire::encode_checked_frame(frame, proof.checksum));
  } else {
    put(wire::encode_frame(frame));
  }
  out_header_left_ = out_header_size_;
}

wire::WireError Connection::decode_header() {
  const std::span<const std::byte, wire::kSealedFrameSize> all(header_);
  if (seals_in()) return seal_->in.open_header(all, frame_);
  if (checks_in()) {
    return wire::decode_checked_frame(all.first<wire::kCheckedFrameSize>(), frame_, due_);
  }
  return wire::decode_frame(all.first<wire::kFrameSize>(), frame_);
}

std::span<std::byte> Connection::hold() {
  if (hold_.empty()) {
    const std::span<std::byte> place = target_->executor->place(frame_.index);
    in_place_ = place.size() >= frame_.length;
    if (!in_place_ && held_.size() < frame_.length) held_.resize(frame_.length);
    hold_ = (in_place_ ? place : std::span(held_)).first(frame_.length);
  }
  return hold_.last(left_);
}

void Connection::held(std::size_t size, Handler& handler) {
  const std::span<std::byte> bytes = hold().first(size);
  if (seals_in()) {
    seal_->in.open_payload(bytes, bytes);
  } else {
    sum_.add(bytes);
  }
  left_ -= size;
  if (left_ == 0) end_held(handler);
}

void Connection::end_held(Handler& handler) {
  const bool is_right = seals_in() ? seal_->in.end_payload() : sum_.value() == due_;
  if (!is_right) {
    spoil(fmt::format("{} bytes of data", frame_.length), handler);
    return;
  }
  if (in_place_) {
    target_->executor->placed(frame_.index, frame_.length);
  } else {
    target_->executor->consume(frame_.index, hold_);
  }
  handler.on_progress(*target_);
}

void Connection::take_checked(std::span<const std::byte> bytes, Handler& handler) {
  if (seals_in()) {
    seal_->in.open_payload(bytes, hold().first(bytes.size()));
    left_ -= bytes.size();
    if (left_ == 0) end_held(handler);
    return;
  }
  if (bytes.size() < frame_.length) {
    std::memcpy(hold().data(), bytes.data(), bytes.size());
    held(bytes.size(), handler);
    return;
  }
  // All of it is here at once, and need not be copied.
  left_ = 0;
  if (wire::crc32c(bytes) != due_) {
    spoil(fmt::format("{} bytes of data", frame_.length), handler);
    return;
  }
  target_->executor->consume(frame_.index, bytes);
  handler.on_progress(*target_);
}

void Connection::take_text(std::span<const std::byte> bytes, Handler& handler) {
  left_ -= bytes.size();
  text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (left_ > 0) return;
  const std::span<std::byte> text = std::as_writable_bytes(std::span(text_));
  bool is_right = true;
  if (seals_in()) {
    seal_->in.open_payload(text, text);
    is_right = seal_->in.end_payload();
  } else if (checks_in()) {
    is_right = wire::crc32c(text) == due_;
  }
  if (!is_right) {
    spoil("a frame that is no data", handler);
    return;
  }
  handler.on_frame(*this, frame_, text_);
}

void Connection::spoil(std::string what, Handler& handler) {
  CHECK(spoiled_.empty());
  spoiled_ = std::move(what);
  if (source_ != 0) spoiled_ += fmt::format(", by its {}", words_for(source_));
  target_ = nullptr;
  stalled_ = false;
  source_ = 0;
  kept_.clear();
  handler.on_spoiled(*this);
}

std::string words_of_spoiled(const Connection& connection, int own_rank) {
  const char* const found =
      connection.sealed()
          ? "Its AES-GCM tag is wrong: look for somebody between the two who changes, repeats or "
            "leaves out what ranks send, or for a faulty card, switch or memory"
          : "The network's own checks missed it, and CRC-32C did not: look for a faulty card, "
            "switch or memory between the two";
  return fmt::format("bytes changed on the way from rank {} to rank {}: {}. {}",
                     connection.peer().value(), own_rank, connection.spoiled(), found);
}

bool Connection::discard(std::span<std::byte> buffer) {
  const ssize_t got = recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0)
    break_off(got == 0 ? "its connection closed" : std::generic_category().message(errno));
  return true;
}

}  // namespace thalweg::net
