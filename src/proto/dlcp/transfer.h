// The types that a DlcpEndpoint and its driver exchange: what to transfer, what to send now, and
// how a transfer ended. None of them holds payload.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/loss_bound.h"
#include "tensor/partition.h"
#include "wire/data_header.h"

namespace thalweg::proto {

enum class Direction : std::uint8_t { kSend, kReceive };

// Names a transfer of one endpoint. An endpoint never uses a handle twice.
enum class TransferHandle : std::uint64_t {};

// One tensor to one peer. Both ends must give the same key, size, type, payload and bound.
struct TransferSpec {
  // Names the tensor. The two ends are matched by key; transfers with equal keys are matched in the
  // order in which they start.
  std::uint64_t key = 0;
  std::int64_t elements = 0;
  DType type = DType::kFloat32;
  Bytes payload = Bytes(1400);  // the most bytes of a packet that a segment may take
  // On success no more than this is missing. Above 0 only for floating-point types.
  LossBound bound;
  // The fraction missing down to which the receiver keeps waiting, as long as that costs less than
  // it brings (DlcpReceiver); at most `bound`. None, the paper's rule: the transfer is done as soon
  // as the bound is kept. Receivers only.
  std::optional<LossBound> target = {};
  // Counts from the start of this end. Above 0; when it has passed, the transfer fails on both
  // ends.
  Duration deadline = Duration::milliseconds(30'000);
  // Among the transfers to one peer the lowest urgency is sent first, then the oldest. Senders
  // only.
  std::uint32_t urgency = 0;
  // A segment leaves only after DlcpEndpoint::offer() named it, for tensors that become complete
  // over time. Senders only.
  bool gradual = false;
  // Returned in batches, placements and events; for the driver's own use.
  std::uint64_t cookie = 0;
};

// Gives the tag of each segment. What it refers to must live until the transfer's event.
class TagSource {
 public:
  using Function = std::function<SegmentTag(SegmentIndex)>;

  // The same tag for all segments.
  TagSource(SegmentTag tag = {}) : same_(tag) {}  // NOLINT(google-explicit-constructor)
  // One tag per segment of the tensor.
  explicit TagSource(std::span<const SegmentTag> tags) : each_(tags), has_each_(true) {}
  // The function is called whenever a segment may be sent next, so several times per segment.
  explicit TagSource(Function function) : function_(std::move(function)) {}

  [[nodiscard]] SegmentTag tag(SegmentIndex index) const;
  // Whether the number of tags suits a tensor of this many segments.
  [[nodiscard]] bool fits(std::int32_t segments) const;

 private:
  SegmentTag same_;
  std::span<const SegmentTag> each_;
  bool has_each_ = false;
  Function function_;
};

// Segments of one tensor with one tag, in order, to be sent now with one system call.
struct DataBatch {
  static constexpr std::uint32_t kMaxSegments = 64;

  TransferHandle handle = {};
  std::uint64_t cookie = 0;
  std::uint32_t transfer = 0;
  std::uint32_t count = 0;
  std::array<std::uint32_t, kMaxSegments> segments = {};  // indices; the first `count` are valid
  Bytes first_offset;                                     // offset of segments[0] in the tensor
  Bytes segment_length;                                   // length of all but the last segment
  Bytes last_length;  // length of the last: shorter than the others only at the tensor's end
  std::uint64_t first_sequence = 0;
  std::uint32_t sent_us = 0;
  SegmentTag tag;
  bool retransmission = false;
  std::uint32_t path = 0;  // the path that all segments take (PathShares)

  // The header of the i-th segment, without `job` and `keyed`. Requires i < count.
  [[nodiscard]] wire::DataHeader header(std::uint32_t i) const;
  // The offset of the i-th segment in the tensor. Requires i < count.
  [[nodiscard]] Bytes offset(std::uint32_t i) const;
};

// What the driver does with the payload of a packet that arrived.
struct Placement {
  // kPlace: copy the payload to `offset` of the tensor before the next call to the endpoint.
  // On all others: drop it; the endpoint has counted it.
  enum class Verdict : std::uint8_t {
    kPlace,
    kDuplicate,   // its segment has arrived already
    kLate,        // its transfer has finished, and the sender may not know yet
    kStale,       // its transfer is over, or never existed
    kBadSegment,  // the tensor has no such segment
    kBadLength,   // the segment has another length
  };
  Verdict verdict = Verdict::kStale;
  TransferHandle handle = {};
  std::uint64_t cookie = 0;
  Bytes offset;
};

// How a transfer ended. Each transfer that was started ends once.
struct TransferOutcome {
  TransferHandle handle = {};
  Direction direction = Direction::kSend;
  std::uint64_t key = 0;
  std::uint64_t cookie = 0;
  // Empty on success; otherwise names the peer, the transfer and the cause.
  std::string error;
  ErrorCode code = ErrorCode::kInternal;  // of the error
  std::int32_t segments = 0;
  std::int32_t arrived = 0;
  std::uint64_t retransmissions = 0;  // segments sent again, or asked for again
  std::uint32_t rounds = 0;           // requests for retransmission
  Time started;
  Time ended;
  // Receivers only: the segments that did not arrive, in order, also on failure.
  std::vector<Bitmap::Run> missing;

  [[nodiscard]] bool ok() const { return error.empty(); }
  // None: it succeeded.
  void fail_with(const std::optional<Error>& failure) {
    if (!failure) return;
    error = failure->message();
    code = failure->code();
  }
  [[nodiscard]] double fraction() const {
    return segments == 0 ? 1.0 : static_cast<double>(arrived) / segments;
  }
};

}  // namespace thalweg::proto
