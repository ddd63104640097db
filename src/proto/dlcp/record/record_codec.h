// The bytes of a recording: numbers, texts and structs of them. One describe() function per struct
// serves both the writer and the reader. docs/recording.md has the grammar.
//
// Numbers take as few bytes as they need, seven bits per byte, the lowest first (LEB128); signed
// ones are folded first (0, -1, 1, -2, …). A value that counts up from record to record (a time, a
// sequence number, an offset) is written as the difference to its last value.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "proto/dlcp/transfer.h"
#include "wire/control_message.h"
#include "wire/data_header.h"

namespace thalweg::proto {

// The kind of a record: which verb of the endpoint was called. A record holds the call's arguments
// and its answer.
enum class RecordKind : std::uint8_t {
  kEnd,  // the last record: the counters
  kStartSend,
  kStartRecv,
  kCancel,
  kConnectionLost,
  kData,
  kControl,
  kTimeout,
  kPollData,
  kPollControl,
  kPollEvent,
  kNextTimeout,
  kNextTimer,
  kSetPaths,
  kDataEnd,
  kOffer,
};
inline constexpr int kRecordKindCount = 16;
const char* name_of(RecordKind kind);

// The values that are written as differences, and the last value of each.
enum class RecordDelta : std::uint8_t { kTime, kSequence, kSegment, kSentUs, kCookie, kOffset };
using RecordDeltas = std::array<std::uint64_t, 6>;

class RecordEncoder {
 public:
  void number(std::uint64_t value);
  void text(std::string_view text);
  void delta(RecordDelta what, std::uint64_t value);
  void time(Time value) {
    delta(RecordDelta::kTime, static_cast<std::uint64_t>(value.since_start().ps()));
  }
  void message(const wire::ControlMessage& message);

  // Called by the describe() functions below.
  template <std::unsigned_integral T>
  void field(T& value) {
    number(value);
  }
  void field(std::int64_t& value) { number(fold(value)); }
  void field(double& value) { number(std::bit_cast<std::uint64_t>(value)); }
  void field(std::string& value) { text(value); }
  template <std::unsigned_integral T>
  void delta_field(RecordDelta what, T& value) {
    delta(what, value);
  }

  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] const RecordDeltas& deltas() const { return last_; }
  // Drops the bytes, but keeps the last values of the differences.
  void clear() { bytes_.clear(); }

 private:
  static std::uint64_t fold(std::int64_t value) {
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  }

  std::vector<std::byte> bytes_;
  RecordDeltas last_ = {};
};

// Reads no byte outside its span. After the first value that is missing or not allowed, all values
// are zero and ok() is false.
class RecordDecoder {
 public:
  // `last`: the encoder's deltas() at the first byte of `in`.
  RecordDecoder(std::span<const std::byte> in, const RecordDeltas& last) : in_(in), last_(last) {}

  std::uint64_t number();
  std::string text();
  std::uint64_t delta(RecordDelta what);
  Time time();
  wire::ControlMessage message();

  template <std::unsigned_integral T>
  void field(T& value) {
    value = narrow<T>(number());
  }
  void field(std::int64_t& value) {
    const std::uint64_t folded = number();
    value = static_cast<std::int64_t>((folded >> 1) ^ (~(folded & 1) + 1));
  }
  void field(double& value) { value = std::bit_cast<double>(number()); }
  void field(std::string& value) { value = text(); }
  template <std::unsigned_integral T>
  void delta_field(RecordDelta what, T& value) {
    value = narrow<T>(delta(what));
  }

  void refuse() { ok_ = false; }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  template <class T>
  T narrow(std::uint64_t value) {
    if (value > std::numeric_limits<T>::max()) ok_ = false;
    return ok_ ? static_cast<T>(value) : T{};
  }
  std::byte next() { return used_ < in_.size() ? in_[used_++] : (ok_ = false, std::byte{}); }

  std::span<const std::byte> in_;
  std::size_t used_ = 0;
  bool ok_ = true;
  RecordDeltas last_;
};

// The descriptions of structs, each of which serves both encoder and decoder. A decoder may return
// values that are not allowed; its caller checks them.
template <class Codec>
void describe_duration(Codec& codec, Duration& value) {
  std::int64_t ps = value.ps();
  codec.field(ps);
  value = Duration::picoseconds(ps);
}

template <class Codec>
void describe_bytes(Codec& codec, Bytes& value) {
  std::int64_t count = value.count();
  codec.field(count);
  value = Bytes(count);
}

template <class Codec>
void describe(Codec& codec, RateControlOptions& rate) {
  std::int64_t bps = rate.line_rate.bps();
  codec.field(bps);
  rate.line_rate = Bandwidth::bits_per_second(bps);
  describe_duration(codec, rate.report_period);
  codec.field(rate.least_report_packets);
  codec.field(rate.congestion_factor);
  codec.field(rate.decrease_factor);
  codec.field(rate.increase_step);
  codec.field(rate.least_rate);
  codec.field(rate.reset_on_retransmission);
  codec.field(rate.reset_on_transfer);
  codec.field(rate.learn_capacity);
  codec.field(rate.capacity_headroom);
}

template <class Codec>
void describe(Codec& codec, DlcpOptions& options) {
  codec.field(options.peer);
  describe(codec, options.rate);
  describe_duration(codec, options.grace.initial);
  describe_duration(codec, options.grace.least);
  describe_duration(codec, options.grace.most);
  codec.field(options.grace.least_packets);
  describe_duration(codec, options.grace.memory);
  codec.field(options.patience.factor);
  describe_duration(codec, options.patience.least);
  describe_duration(codec, options.patience.most);
  describe_duration(codec, options.patience.initial_round_trip);
  codec.field(options.paths.learn);
  codec.field(options.paths.tolerated);
  codec.field(options.paths.growth);
  codec.field(options.paths.least_weight);
  describe_duration(codec, options.paths.retry);
  codec.field(options.paths.least_packets);
  describe_duration(codec, options.paths.pace);
  codec.field(options.paths.packets_per_path);
  describe_duration(codec, options.want.after);
  describe_duration(codec, options.want.most);
  codec.field(options.order.by_urgency);
  codec.field(options.order.by_size);
  codec.field(options.order.ageing);
  codec.field(options.order_seed);
  codec.field(options.paced_by_driver);
  codec.field(options.burst_segments);
  describe_bytes(codec, options.packet_overhead);
  codec.field(options.max_transfers);
  codec.field(options.first_transfer);
}

template <class Codec>
void describe(Codec& codec, LossBound& bound) {
  std::uint32_t ppb = bound.ppb();
  codec.field(ppb);
  bound = LossBound::parts_per_billion(ppb);
}

template <class Codec>
void describe(Codec& codec, TransferSpec& spec) {
  codec.field(spec.key);
  codec.field(spec.elements);
  auto type = static_cast<std::uint8_t>(spec.type);
  codec.field(type);
  spec.type = static_cast<DType>(type);
  describe_bytes(codec, spec.payload);
  describe(codec, spec.bound);
  bool has_target = spec.target.has_value();
  codec.field(has_target);
  if (has_target) {
    LossBound target = spec.target.value_or(LossBound());
    describe(codec, target);
    spec.target = target;
  }
  describe_duration(codec, spec.deadline);
  codec.field(spec.urgency);
  codec.field(spec.gradual);
  codec.delta_field(RecordDelta::kCookie, spec.cookie);
}

template <class Codec>
void describe(Codec& codec, SegmentTag& tag) {
  constexpr std::uint8_t kImportant = 0x80;
  auto bits = static_cast<std::uint8_t>(tag.priority | (tag.important ? kImportant : 0));
  codec.field(bits);
  tag.priority = bits & (kImportant - 1);
  tag.important = (bits & kImportant) != 0;
}

// Leaves out the fields that the endpoint does not read: the job token and whether it is keyed.
template <class Codec>
void describe(Codec& codec, wire::DataHeader& header) {
  codec.delta_field(RecordDelta::kSequence, header.sequence);
  codec.field(header.transfer);
  codec.delta_field(RecordDelta::kSegment, header.segment);
  codec.delta_field(RecordDelta::kSentUs, header.sent_us);
  codec.field(header.length);
  describe(codec, header.tag);
  codec.field(header.retransmission);
}

// A recording is a file of blocks, each of which holds whole records. A Recorder ends a block once
// it has this many bytes.
inline constexpr std::size_t kRecordBlock = std::size_t{1} << 16;
// The first bytes of the file.
[[nodiscard]] std::vector<std::byte> recording_start();
inline constexpr std::size_t kMaxRecordBlock = std::size_t{1} << 30;
// Appends `content` as a block. Requires at most kMaxRecordBlock bytes.
void append_block(std::span<const std::byte> content, std::vector<std::byte>& file);
// The contents of all blocks. Fails if the file is not a recording, or damaged.
[[nodiscard]] Result<std::vector<std::byte>> recording_content(std::span<const std::byte> file);

}  // namespace thalweg::proto
