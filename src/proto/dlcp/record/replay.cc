#include "proto/dlcp/record/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "proto/dlcp/record/record_codec.h"
#include "proto/dlcp/record/recorded_endpoint.h"

namespace thalweg::proto {
namespace {

constexpr Time kLatest = Time::at(Duration::picoseconds(std::int64_t{1} << 62));
constexpr std::size_t kShownBeyond = 8;  // bytes shown after a difference

// Rejects durations and factors so large that computed times would leave the range of Time.
Status check_options(const DlcpOptions& options) {
  constexpr double kMostFactor = 1e6;
  constexpr double kSlowestBps = 100;
  constexpr Bandwidth kFastest = Bandwidth::gbps(1'000'000);
  constexpr Duration kLongest = Duration::milliseconds(3'600'000);
  const RateControlOptions& rate = options.rate;
  if (rate.line_rate > kFastest ||
      static_cast<double>(rate.line_rate.bps()) * rate.least_rate < kSlowestBps) {
    return Error(fmt::format("its line rate of {} or its least rate cannot be replayed",
                             to_string(rate.line_rate)));
  }
  for (const double factor : {rate.congestion_factor, rate.capacity_headroom,
                              options.patience.factor, options.paths.growth}) {
    if (!(factor <= kMostFactor))
      return Error(fmt::format("a factor of {} in its options", factor));
  }
  for (const Duration duration : {rate.report_period, options.grace.memory,
                                  options.patience.initial_round_trip, options.paths.retry}) {
    if (duration > kLongest) {
      return Error(fmt::format("a time of {} in its options", to_string(duration)));
    }
  }
  constexpr Bytes kMostOverhead(65'535);
  if (options.packet_overhead > kMostOverhead) return Error("its packet overhead is too large");
  return options.validate();
}

class Replayer {
 public:
  Replayer(std::span<const std::byte> content, const ReplayLimits& limits)
      : content_(content), limits_(limits) {}

  Result<ReplaySummary> run() {
    RecordDecoder in(content_, {});
    DlcpOptions options;
    describe(in, options);
    if (!in.ok()) return Error("the options of the recorded endpoint cannot be read");
    THALWEG_TRY_STATUS(check_options(options));
    endpoint_.emplace(options);
    endpoint_->record(nullptr);
    if (!same(0, "options")) return std::move(summary_);
    while (used_ < content_.size() && !summary_.complete) {
      THALWEG_TRY_STATUS(step());
      if (summary_.difference) return std::move(summary_);
    }
    if (used_ < content_.size()) return Error("records follow the end of the recording");
    summary_.counters = endpoint_->counters();
    return std::move(summary_);
  }

 private:
  // Reads the next record's arguments, makes the call, and compares the answer.
  Status step() {
    ++summary_.records;
    RecordDecoder in(content_.subspan(used_), endpoint_->recorder()->deltas());
    const std::uint64_t kind = in.number();
    if (!in.ok() || kind >= kRecordKindCount || !call(static_cast<RecordKind>(kind), in)) {
      return Error(fmt::format("record {} cannot be read{}", summary_.records,
                               why_.empty() ? "" : ": " + why_));
    }
    same(summary_.records, name_of(static_cast<RecordKind>(kind)));
    return ok_status();
  }

  // Returns false if the arguments are missing or not allowed.
  bool call(RecordKind kind, RecordDecoder& in) {
    switch (kind) {
      case RecordKind::kEnd:
        endpoint_->recorder()->end(endpoint_->counters());
        return summary_.complete = true;
      case RecordKind::kStartSend:
        return start_send(in);
      case RecordKind::kStartRecv:
        return start_recv(in);
      case RecordKind::kOffer:
        return offer(in);
      case RecordKind::kCancel: {
        const bool good = read_time(in);
        const auto handle = TransferHandle{in.number()};
        const std::string cause = in.text();
        if (good && in.ok()) endpoint_->cancel(handle, cause, now_);
        return good && in.ok();
      }
      case RecordKind::kConnectionLost: {
        const bool good = read_time(in);
        const std::string cause = in.text();
        if (good && in.ok()) endpoint_->connection_lost(cause, now_);
        return good && in.ok();
      }
      case RecordKind::kData:
        return data(in);
      case RecordKind::kControl: {
        const bool good = read_time(in);
        const wire::ControlMessage message = in.message();
        if (!good || !in.ok()) return false;
        ++summary_.messages_received;
        endpoint_->on_control(message, now_);
        return true;
      }
      case RecordKind::kTimeout:
        if (!read_time(in)) return false;
        endpoint_->on_timeout(now_);
        return true;
      case RecordKind::kSetPaths: {
        const bool good = read_time(in);
        std::uint32_t paths = 0;
        in.field(paths);
        if (!good || !in.ok() || paths == 0 || paths > wire::kMaxReportPaths) return false;
        endpoint_->set_paths(paths, now_);
        return true;
      }
      case RecordKind::kDataEnd: {
        const bool good = read_time(in);
        std::uint64_t end_sequence = 0;
        in.delta_field(RecordDelta::kSequence, end_sequence);
        std::uint8_t queue = 0;
        in.field(queue);
        std::uint32_t path = 0;
        in.field(path);
        if (!good || !in.ok() || queue >= kPriorityCount) return false;
        endpoint_->on_data_end(end_sequence, queue, now_, path);
        return true;
      }
      default:
        return poll(kind, in);
    }
  }

  bool poll(RecordKind kind, RecordDecoder& in) {
    switch (kind) {
      case RecordKind::kPollData: {
        const bool good = read_time(in);
        std::uint32_t most = 0;
        in.field(most);
        if (!good || !in.ok() || most == 0) return false;
        endpoint_->poll_data(now_, most, batch_);
        return true;
      }
      case RecordKind::kPollControl: {
        wire::ControlMessage message;
        if (endpoint_->poll_control(message)) ++summary_.messages_sent;
        return true;
      }
      case RecordKind::kPollEvent: {
        TransferOutcome outcome;
        if (endpoint_->poll_event(outcome)) ++(outcome.ok() ? summary_.succeeded : summary_.failed);
        return true;
      }
      case RecordKind::kNextTimeout:
        endpoint_->next_timeout();
        return true;
      case RecordKind::kNextTimer:
        endpoint_->next_timer();
        return true;
      default:
        return false;
    }
  }

  bool read_time(RecordDecoder& in) {
    const Time time = in.time();
    if (!in.ok()) return false;
    if (time < now_ || time > kLatest) {
      why_ = "its time is before that of the record before it, or out of range";
      return false;
    }
    if (!begun_) started_ = time;
    begun_ = true;
    now_ = time;
    summary_.duration = now_ - started_;
    return true;
  }

  // 0 for a tensor that cannot be divided into segments.
  static std::uint64_t segments_in(const TransferSpec& spec) {
    const auto partition = tensor::Partition::make(
        spec.elements, Bytes(static_cast<std::int64_t>(size_of(spec.type))), spec.payload);
    return partition.ok() ? static_cast<std::uint64_t>(partition->segment_count()) : 0;
  }

  bool read_spec(RecordDecoder& in, TransferSpec& spec) {
    const bool good = read_time(in);
    describe(in, spec);
    constexpr std::uint32_t kBillion = LossBound::kBillion;
    if (!good || !in.ok() || static_cast<int>(spec.type) >= kDTypeCount ||
        spec.bound.ppb() >= kBillion || spec.target.value_or(LossBound()).ppb() >= kBillion) {
      return false;
    }
    segments_ += static_cast<std::int64_t>(segments_in(spec));
    if (segments_ > limits_.segments) why_ = "its transfers have too many segments";
    return why_.empty();
  }

  bool start_send(RecordDecoder& in) {
    TransferSpec spec;
    if (!read_spec(in, spec)) return false;
    const std::uint64_t count = in.number();
    // A tag takes at least one byte, so this check keeps a short file from asking for much memory.
    if (count > content_.size() - used_) return false;
    std::vector<SegmentTag>& tags = tags_.emplace_back(static_cast<std::size_t>(count));
    for (SegmentTag& tag : tags) {
      describe(in, tag);
      if (tag.priority >= kPriorityCount) in.refuse();
    }
    if (!in.ok()) return false;
    const Result<TransferHandle> handle = endpoint_->start_send(spec, tags, now_);
    if (!handle.ok()) return true;
    ++summary_.sends;
    if (spec.gradual) gradual_.emplace(*handle, segments_in(spec));
    return true;
  }

  bool offer(RecordDecoder& in) {
    const bool good = read_time(in);
    const auto found = gradual_.find(TransferHandle{in.number()});
    const std::uint64_t first = in.delta(RecordDelta::kSegment);
    const std::uint64_t count = in.number();
    if (!good || !in.ok() || found == gradual_.end() || first > found->second ||
        count > found->second - first) {
      return false;
    }
    endpoint_->offer(found->first, {first, first + count}, now_);
    return true;
  }

  bool start_recv(RecordDecoder& in) {
    TransferSpec spec;
    if (!read_spec(in, spec)) return false;
    if (endpoint_->start_recv(spec, now_).ok()) ++summary_.receives;
    return true;
  }

  bool data(RecordDecoder& in) {
    const bool good = read_time(in);
    wire::DataHeader header;
    describe(in, header);
    bool marked = false;
    in.field(marked);
    std::uint32_t path = 0;
    in.field(path);
    if (!good || !in.ok() || header.length == 0 || header.tag.priority >= kPriorityCount ||
        header.segment > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
      return false;
    }
    ++summary_.packets_received;
    endpoint_->on_data(header, marked, now_, path);
    return true;
  }

  // Compares the bytes of the record just made with those of the file; notes a difference.
  bool same(std::uint64_t record, const char* verb) {
    const std::span<const std::byte> replayed = endpoint_->recorder()->pending();
    const std::span<const std::byte> left = content_.subspan(used_);
    const auto [ours, theirs] = std::ranges::mismatch(replayed, left);
    const bool equal = ours == replayed.end();
    if (equal) {
      used_ += replayed.size();
    } else {
      const auto shown = static_cast<std::size_t>(ours - replayed.begin()) + kShownBeyond;
      summary_.difference = {record, verb, summary_.duration, hex(left, shown),
                             hex(replayed, shown)};
    }
    endpoint_->recorder()->clear();
    return equal;
  }

  static std::string hex(std::span<const std::byte> bytes, std::size_t most) {
    std::string text;
    for (const std::byte byte : bytes.first(std::min(bytes.size(), most))) {
      text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned>(byte));
    }
    return text;
  }

  std::span<const std::byte> content_;
  ReplayLimits limits_;
  std::size_t used_ = 0;
  std::optional<RecordedEndpoint> endpoint_;
  std::deque<std::vector<SegmentTag>> tags_;         // kept because the endpoint refers to them
  std::map<TransferHandle, std::uint64_t> gradual_;  // segments of the gradual sends
  DataBatch batch_;
  Time now_;
  Time started_;
  bool begun_ = false;
  std::int64_t segments_ = 0;
  std::string why_;
  ReplaySummary summary_;
};

}  // namespace

Result<ReplaySummary> replay_records(std::span<const std::byte> content,
                                     const ReplayLimits& limits) {
  return Replayer(content, limits).run();
}

Result<ReplaySummary> replay_recording(std::span<const std::byte> file,
                                       const ReplayLimits& limits) {
  THALWEG_TRY(const std::vector<std::byte> content, recording_content(file));
  return replay_records(content, limits);
}

}  // namespace thalweg::proto
