#include "proto/collective/frames.h"

#include <utility>

#include "base/error_code.h"

namespace thalweg::proto {
namespace {

std::uint32_t number_of(const std::optional<Rank>& rank) {
  return rank ? static_cast<std::uint32_t>(rank->value()) : wire::kNoFrameRank;
}

// Writes the fields of one kind into a header, and its text into `text`.
struct Writer {
  wire::Frame& out;
  std::string& text;

  void operator()(const StartedFrame& /*frame*/) const { out.kind = wire::FrameKind::kStarted; }
  void operator()(const AskFrame& frame) const {
    out.kind = wire::FrameKind::kAsk;
    out.operation = frame.operation;
    out.signature = frame.signature;
    text = frame.text;
  }
  void operator()(const AnswerFrame& frame) const {
    out.kind = wire::FrameKind::kAnswer;
    out.operation = frame.operation;
    out.signature = frame.signature.value_or(0);
    out.rank = number_of(frame.waits_for);
    text = frame.text;
  }
  void operator()(const AbortFrame& frame) const {
    out.kind = wire::FrameKind::kAbort;
    out.index = static_cast<std::uint32_t>(frame.code);
    out.rank = number_of(frame.culprit);
    text = frame.text;
  }
  void operator()(const LeaveFrame& /*frame*/) const { out.kind = wire::FrameKind::kLeave; }
};

}  // namespace

AbortFrame abort_frame(const Error& why, Rank from) {
  if (why.code() == ErrorCode::kCancelled) return {ErrorCode::kPeerLost, from, why.message()};
  AbortFrame frame{why.code(), std::nullopt, why.message()};
  if (why.rank()) frame.culprit = Rank(*why.rank());
  return frame;
}

Error error_of(const AbortFrame& frame) {
  std::optional<int> rank;
  if (frame.culprit) rank = frame.culprit->value();
  return {frame.code, frame.text, rank};
}

wire::Frame wire_frame(const ControlFrame& frame, std::uint32_t started, std::string& text) {
  wire::Frame out{.started = started};
  text.clear();
  std::visit(Writer{out, text}, frame);
  if (text.size() > wire::kMaxFrameText) text.resize(wire::kMaxFrameText);
  out.length = static_cast<std::uint32_t>(text.size());
  return out;
}

std::optional<ControlFrame> control_frame(const wire::Frame& frame, std::string text, int ranks) {
  std::optional<Rank> rank;
  const bool names_rank =
      frame.kind == wire::FrameKind::kAnswer || frame.kind == wire::FrameKind::kAbort;
  if (names_rank && frame.rank != wire::kNoFrameRank) {
    if (frame.rank >= static_cast<std::uint32_t>(ranks)) return std::nullopt;
    rank = Rank(static_cast<std::int32_t>(frame.rank));
  }
  switch (frame.kind) {
    case wire::FrameKind::kStarted:
      return StartedFrame{};
    case wire::FrameKind::kAsk:
      return AskFrame{frame.operation, frame.signature, std::move(text)};
    case wire::FrameKind::kAnswer: {
      AnswerFrame answer{frame.operation, std::nullopt, rank, std::move(text)};
      if (frame.signature != 0) answer.signature = frame.signature;
      return answer;
    }
    case wire::FrameKind::kAbort:
      return AbortFrame{error_code_of(frame.index), rank, std::move(text)};
    case wire::FrameKind::kLeave:
      return LeaveFrame{};
    default:
      return std::nullopt;
  }
}

}  // namespace thalweg::proto
