#include "proto/collective/frames.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace thalweg::proto {
namespace {

TEST(CollectiveFrames, control__survives_the_wire) {
  const std::vector<ControlFrame> frames = {
      StartedFrame{},
      AskFrame{7, 8, "allreduce"},
      AnswerFrame{7, 9, Rank(3), "broadcast"},
      AnswerFrame{7, std::nullopt, std::nullopt, "has called nothing yet"},
      AbortFrame{ErrorCode::kTimeout, Rank(0), "why"},
      AbortFrame{ErrorCode::kMismatch, std::nullopt, ""},
      LeaveFrame{},
  };
  for (const ControlFrame& frame : frames) {
    std::string text;
    const wire::Frame header = wire_frame(frame, 42, text);
    EXPECT_EQ(header.started, 42U);
    EXPECT_EQ(header.length, text.size());
    wire::Frame decoded;
    ASSERT_EQ(wire::decode_frame(wire::encode_frame(header), decoded), wire::WireError::kNone);
    EXPECT_EQ(control_frame(decoded, text, 4), frame) << frame.index();
  }
}

TEST(CollectiveFrames, control__refuses_other_kinds_and_ranks_that_do_not_exist) {
  const wire::Frame abort{.kind = wire::FrameKind::kAbort, .rank = 4};
  EXPECT_FALSE(control_frame(abort, "", 4).has_value());
  EXPECT_TRUE(control_frame(abort, "", 5).has_value());
  for (const wire::FrameKind kind :
       {wire::FrameKind::kHello, wire::FrameKind::kData, wire::FrameKind::kLaneData,
        wire::FrameKind::kMessage, wire::FrameKind::kTaken, wire::FrameKind::kAccept,
        wire::FrameKind::kOffer, wire::FrameKind::kShared}) {
    EXPECT_FALSE(control_frame({.kind = kind, .rank = 1}, "", 4).has_value());
  }
}

TEST(CollectiveFrames, text__is_cut_to_what_a_frame_holds) {
  std::string text;
  const ControlFrame frame = AbortFrame{ErrorCode::kInternal, std::nullopt, std::string(5000, 'x')};
  EXPECT_EQ(wire_frame(frame, 0, text).length, wire::kMaxFrameText);
  EXPECT_EQ(text.size(), wire::kMaxFrameText);
}

}  // namespace
}  // namespace thalweg::proto
