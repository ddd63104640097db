// The frames of the collective protocol, one type for each kind: what one rank tells another about
// their operations. The stream that carries them keeps them in order. wire/frame.h has the bytes.
//
// Every frame also says how many operations its sender has started (wire::Frame::started).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <thalweg/result.h>

#include "base/units.h"
#include "wire/frame.h"

namespace thalweg::proto {

// The header of a data frame. The payload does not pass through the protocol.
struct DataFrame {
  std::uint32_t operation = 0;
  std::uint32_t arrival = 0;    // the arrival of the operation at the receiver
  std::uint32_t length = 0;     // bytes of the payload
  std::uint64_t signature = 0;  // of the sender's call
  std::uint32_t started = 0;    // the last operation that the sender has started
};

// Says only how many operations the sender has started.
struct StartedFrame {
  bool operator==(const StartedFrame&) const = default;
};
// Asks where the receiver is in an operation that the sender runs.
struct AskFrame {
  std::uint32_t operation = 0;
  std::uint64_t signature = 0;  // of the sender's call
  std::string text;             // the sender's call in words
  bool operator==(const AskFrame&) const = default;
};
struct AnswerFrame {
  std::uint32_t operation = 0;
  std::optional<std::uint64_t> signature;  // of the sender's call, if it remembers one
  std::optional<Rank> waits_for;           // the last rank that the sender is known to wait for
  std::string text;                        // the sender's call, or why there is none
  bool operator==(const AnswerFrame&) const = default;
};
// The communicator is broken.
struct AbortFrame {
  ErrorCode code = ErrorCode::kInternal;
  std::optional<Rank> culprit;
  std::string text;
  bool operator==(const AbortFrame&) const = default;
};
// The sender leaves; nothing follows.
struct LeaveFrame {
  bool operator==(const LeaveFrame&) const = default;
};
using ControlFrame = std::variant<StartedFrame, AskFrame, AnswerFrame, AbortFrame, LeaveFrame>;

// What a rank tells the others when it fails, and the error that they get. A rank that gives up by
// leaving is lost to them.
[[nodiscard]] AbortFrame abort_frame(const Error& why, Rank from);
[[nodiscard]] Error error_of(const AbortFrame& frame);

[[nodiscard]] inline DataFrame data_frame(const wire::Frame& frame) {
  return {frame.operation, frame.index, frame.length, frame.signature, frame.started};
}
[[nodiscard]] inline wire::Frame wire_frame(const DataFrame& frame) {
  return {.kind = wire::FrameKind::kData,
          .operation = frame.operation,
          .index = frame.arrival,
          .length = frame.length,
          .signature = frame.signature,
          .started = frame.started};
}

// `started`: the last operation that the sender has started. The text, which is cut to
// wire::kMaxFrameText bytes, becomes the payload.
[[nodiscard]] wire::Frame wire_frame(const ControlFrame& frame, std::uint32_t started,
                                     std::string& text);
// `ranks`: the size of the group. None: the frame is of another kind, or names a rank that does not
// exist.
[[nodiscard]] std::optional<ControlFrame> control_frame(const wire::Frame& frame, std::string text,
                                                        int ranks);

}  // namespace thalweg::proto
