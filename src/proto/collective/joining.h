// How streams between the ranks of a communicator begin, go on over another connection, and give
// way to shared memory: one type for each frame, and what a rank decides about it, without I/O.
//
// The higher rank of two makes their streams, when they are first needed, and says hello on each:
//
//   kFirst      the first stream of the two; its hello says how many they will have
//   kLane       a further one, for payloads of large frames
//   kMoved      a stream of the two that goes on over this connection (streams/stream_bytes.h)
//   kMessages   messages from the sender to the receiver, made by whoever sends them
//
// The hello also says how the frames that follow are checked. Both ranks must want the same.
#pragma once

#include <cstdint>
#include <optional>

#include <thalweg/result.h>

#include "base/units.h"
#include "wire/frame.h"

namespace thalweg::proto {

struct HelloFrame {
  enum class Purpose : std::uint8_t { kFirst, kMessages, kLane, kMoved };
  Purpose purpose = Purpose::kFirst;
  // kFirst: how many streams the two ranks will have; kLane, kMoved: the number of the stream.
  std::uint32_t number = 0;
  Rank rank;                    // the sender's
  std::uint32_t ranks = 0;      // of the group
  std::uint64_t signature = 0;  // identifies job and group
  wire::FrameCheck check = wire::FrameCheck::kNone;
  bool operator==(const HelloFrame&) const = default;
};
// Offers memory that the two ranks can share: a file of the sender's process.
struct OfferFrame {
  std::uint32_t process = 0;
  std::uint32_t descriptor = 0;
  std::uint64_t label = 0;
  bool operator==(const OfferFrame&) const = default;
};
// On a stream that moves: how many of its bytes the sender has received.
struct ResumeFrame {
  std::uint32_t stream = 0;
  std::uint64_t received = 0;
  bool operator==(const ResumeFrame&) const = default;
};

[[nodiscard]] wire::Frame wire_frame(const HelloFrame& frame);
[[nodiscard]] wire::Frame wire_frame(const OfferFrame& frame);
[[nodiscard]] wire::Frame wire_frame(const ResumeFrame& frame);
// None: the frame is of another kind, or has a payload.
[[nodiscard]] std::optional<HelloFrame> hello_frame(const wire::Frame& frame);
[[nodiscard]] std::optional<OfferFrame> offer_frame(const wire::Frame& frame);
[[nodiscard]] std::optional<ResumeFrame> resume_frame(const wire::Frame& frame);

// One rank's part in it.
class Joining {
 public:
  Joining(Rank rank, int ranks, std::uint64_t signature)
      : rank_(rank), ranks_(static_cast<std::uint32_t>(ranks)), signature_(signature) {}

  // The hello of a stream that this rank makes; its check is not set.
  [[nodiscard]] HelloFrame hello(HelloFrame::Purpose purpose, std::uint32_t number) const {
    return {purpose, number, rank_, ranks_, signature_, wire::FrameCheck::kNone};
  }
  // Whether this rank takes such a stream: it comes from a rank of the same group, which is the one
  // that makes it. `sealed`: whether it came sealed, which the hello must say, too.
  [[nodiscard]] bool takes(const HelloFrame& hello, bool sealed) const;
  // The error if the hello says another check than `own`, this rank's for the stream.
  // `by_place`: this rank checks frames between hosts only. It then goes by the other: a proxy may
  // be between the two, so that one of them takes for its host's own what the other does not.
  [[nodiscard]] std::optional<Error> mismatch_of(const HelloFrame& hello, wire::FrameCheck own,
                                                 bool by_place) const;

 private:
  Rank rank_;
  std::uint32_t ranks_;
  std::uint64_t signature_;
};

}  // namespace thalweg::proto
