#include "proto/collective/joining.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

namespace thalweg::proto {
namespace {

using Purpose = HelloFrame::Purpose;

std::uint32_t number_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::kFirst:
      return wire::kFirstStream;
    case Purpose::kMessages:
      return wire::kMessageStream;
    case Purpose::kLane:
      return wire::kLaneStream;
    case Purpose::kMoved:
      return wire::kMovedStream;
  }
  return wire::kFirstStream;
}

std::optional<Purpose> purpose_of(std::uint32_t number) {
  for (const Purpose purpose :
       {Purpose::kFirst, Purpose::kMessages, Purpose::kLane, Purpose::kMoved}) {
    if (number_of(purpose) == number) return purpose;
  }
  return std::nullopt;
}

constexpr auto kMostRanks = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());

bool is_plain(const wire::Frame& frame, wire::FrameKind kind) {
  return frame.kind == kind && frame.length == 0;
}

}  // namespace

wire::Frame wire_frame(const HelloFrame& frame) {
  return {.kind = wire::FrameKind::kHello,
          .operation = number_of(frame.purpose),
          .index = frame.ranks,
          .signature = frame.signature,
          .started = frame.number,
          .rank = static_cast<std::uint32_t>(frame.rank.value()),
          .check = frame.check};
}

wire::Frame wire_frame(const OfferFrame& frame) {
  return {.kind = wire::FrameKind::kOffer,
          .operation = frame.process,
          .index = frame.descriptor,
          .signature = frame.label};
}

wire::Frame wire_frame(const ResumeFrame& frame) {
  return {.kind = wire::FrameKind::kResume, .signature = frame.received, .started = frame.stream};
}

std::optional<HelloFrame> hello_frame(const wire::Frame& frame) {
  const std::optional<Purpose> purpose = purpose_of(frame.operation);
  if (!is_plain(frame, wire::FrameKind::kHello) || !purpose || frame.rank >= frame.index ||
      frame.index > kMostRanks) {
    return std::nullopt;
  }
  return HelloFrame{*purpose,    frame.started,   Rank(static_cast<std::int32_t>(frame.rank)),
                    frame.index, frame.signature, frame.check};
}

std::optional<OfferFrame> offer_frame(const wire::Frame& frame) {
  if (!is_plain(frame, wire::FrameKind::kOffer)) return std::nullopt;
  return OfferFrame{frame.operation, frame.index, frame.signature};
}

std::optional<ResumeFrame> resume_frame(const wire::Frame& frame) {
  if (!is_plain(frame, wire::FrameKind::kResume)) return std::nullopt;
  return ResumeFrame{frame.started, frame.signature};
}

bool Joining::takes(const HelloFrame& hello, bool sealed) const {
  const bool same_group = hello.signature == signature_ && hello.ranks == ranks_;
  const bool says_sealed = hello.check == wire::FrameCheck::kSealed;
  if (!same_group || says_sealed != sealed) return false;
  switch (hello.purpose) {
    case Purpose::kMessages:
      return true;  // a rank may send messages to itself
    case Purpose::kLane:
      return hello.rank > rank_ && hello.number >= 1 && hello.number <= wire::kMaxLane;
    case Purpose::kFirst:
    case Purpose::kMoved:
      return hello.rank > rank_;
  }
  return false;
}

std::optional<Error> Joining::mismatch_of(const HelloFrame& hello, wire::FrameCheck own,
                                          bool by_place) const {
  const bool seals = own == wire::FrameCheck::kSealed;
  const bool by_other = by_place && hello.check == wire::FrameCheck::kChecksum;
  if (hello.check == own || (by_other && !seals)) return std::nullopt;
  const bool on_sealing = seals || hello.check == wire::FrameCheck::kSealed;
  const auto words = [&](wire::FrameCheck check) {
    if (check == wire::FrameCheck::kSealed) return "encrypts its streams";
    if (on_sealing) return "does not encrypt them";
    return check == wire::FrameCheck::kNone ? "sends frames without checksums"
                                            : "sends frames with checksums";
  };
  const bool other_first = hello.check == wire::FrameCheck::kSealed || !on_sealing;
  const auto other = std::pair(hello.rank.value(), hello.check);
  const auto mine = std::pair(rank_.value(), own);
  const auto& [first, first_check] = other_first ? other : mine;
  const auto& [second, second_check] = other_first ? mine : other;
  return Error(ErrorCode::kMismatch,
               fmt::format("rank {} {}, and rank {} {}: {} must be the same on all ranks", first,
                           words(first_check), second, words(second_check),
                           on_sealing ? "THALWEG_ENCRYPT" : "THALWEG_CHECKSUM"));
}

}  // namespace thalweg::proto
