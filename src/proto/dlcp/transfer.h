// The words in which an endpoint and its driver talk: what to transfer, what to send now, what came
// of it. Payload is never part of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/types.h>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/loss_bound.h"
#include "tensor/partition.h"
#include "wire/data_header.h"

namespace thalweg {

enum class Direction : std::uint8_t { kSend, kReceive };

// A transfer of one endpoint; never used twice.
enum class TransferHandle : std::uint64_t {};

// One tensor between two peers. Both ends say the same key, size, type, payload and bound.
struct TransferSpec {
  // Which tensor: the ends match by it, and equal keys in order of starting.
  std::uint64_t key = 0;
  std::int64_t elements = 0;
  DType type = DType::kFloat32;
  Bytes payload = Bytes(1400);  // the most of a packet that a segment may take
  // On success no more than this is missing. Above 0 only for floating-point types.
  LossBound bound;
  // What the receiver waits for as long as that costs less than it brings (DlcpReceiver); at most
  // `bound`. None, the paper's rule: done as soon as the bound is kept. Receivers only.
  std::optional<LossBound> target = {};
  // From the start of this end. Above 0; when it has passed the transfer fails, on both ends.
  Duration deadline = Duration::milliseconds(30'000);
  // Among the transfers to one peer the lowest goes first, then the oldest. Senders only.
  std::uint32_t urgency = 0;
  // Comes back in batches, placements and events; for the driver's own use.
  std::uint64_t cookie = 0;
};

// The tag of each segment. What it refers to must live until the transfer's event.
class TagSource {
 public:
  using Function = std::function<SegmentTag(SegmentIndex)>;

  // The same for all.
  TagSource(SegmentTag tag = {}) : same_(tag) {}  // NOLINT(google-explicit-constructor)
  // One a segment: as many as the tensor has.
  explicit TagSource(std::span<const SegmentTag> tags) : each_(tags), has_each_(true) {}
  // Called when a segment is about to be sent or might be, several times each.
  explicit TagSource(Function function) : function_(std::move(function)) {}

  [[nodiscard]] SegmentTag tag(SegmentIndex index) const;
  // There is a tag for each of so many segments, and no more.
  [[nodiscard]] bool fits(std::int32_t segments) const;

 private:
  SegmentTag same_;
  std::span<const SegmentTag> each_;
  bool has_each_ = false;
  Function function_;
};

// Segments of one tensor and one tag, in order, to be sent now: one system call.
struct DataBatch {
  static constexpr std::uint32_t kMaxSegments = 64;

  TransferHandle handle = {};
  std::uint64_t cookie = 0;
  std::uint32_t transfer = 0;
  std::uint32_t count = 0;
  std::array<std::uint32_t, kMaxSegments> segments = {};  // indices; the first `count` hold
  Bytes first_offset;                                     // of segments[0], in the tensor
  Bytes segment_length;                                   // of all but the last
  Bytes last_length;  // shorter than the others only at the tensor's end
  std::uint64_t first_sequence = 0;
  std::uint32_t sent_us = 0;
  SegmentTag tag;
  bool retransmission = false;
  std::uint32_t path = 0;  // of them all (PathShares)

  // The header of the i-th segment, less job and keyed. Requires i < count.
  [[nodiscard]] DataHeader header(std::uint32_t i) const;
  // Of the i-th segment, in the tensor. Requires i < count.
  [[nodiscard]] Bytes offset(std::uint32_t i) const;
};

// What to do with the payload of a packet that arrived.
struct Placement {
  // kPlace: copy the payload to `offset` of the tensor before the next call to the endpoint.
  // All others: drop it; it was counted.
  enum class Verdict : std::uint8_t {
    kPlace,
    kDuplicate,   // its segment is there already
    kLate,        // its transfer has finished, and the sender may not know yet
    kStale,       // its transfer is over, or never was
    kBadSegment,  // the tensor has no such segment
    kBadLength,   // the segment has another length
  };
  Verdict verdict = Verdict::kStale;
  TransferHandle handle = {};
  std::uint64_t cookie = 0;
  Bytes offset;
};

// How a transfer ended. Each one that was started ends once.
struct TransferOutcome {
  TransferHandle handle = {};
  Direction direction = Direction::kSend;
  std::uint64_t key = 0;
  std::uint64_t cookie = 0;
  // Empty: success. Otherwise names the peer, the transfer and the cause.
  std::string error;
  std::int32_t segments = 0;
  std::int32_t arrived = 0;
  std::uint64_t retransmissions = 0;  // segments sent again, or asked for again
  std::uint32_t rounds = 0;           // requests for retransmission
  Time started;
  Time ended;
  // Receivers: the segments that did not arrive, in order; on failure as well.
  std::vector<Bitmap::Run> missing;

  [[nodiscard]] bool ok() const { return error.empty(); }
  [[nodiscard]] double fraction() const {
    return segments == 0 ? 1.0 : static_cast<double>(arrived) / segments;
  }
};

}  // namespace thalweg
