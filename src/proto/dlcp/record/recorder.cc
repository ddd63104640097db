#include "proto/dlcp/record/recorder.h"

#include <utility>

namespace thalweg::proto {

Recorder::Recorder(const DlcpOptions& options, RecordSink sink) : sink_(std::move(sink)) {
  DlcpOptions copy = options;
  describe(out_, copy);
}

void Recorder::give() {
  sink_(out_.bytes());
  out_.clear();
}

void Recorder::started(const Result<TransferHandle>& answer) {
  out_.number(answer.ok() ? 1 : 0);
  if (answer.ok()) {
    out_.number(static_cast<std::uint64_t>(*answer));
  } else {
    out_.text(answer.error().message());
  }
  finish();
}

void Recorder::start_send(const TransferSpec& spec, std::span<const SegmentTag> tags, Time now,
                          const Result<TransferHandle>& answer) {
  begin(RecordKind::kStartSend);
  out_.time(now);
  TransferSpec copy = spec;
  describe(out_, copy);
  out_.number(tags.size());
  for (SegmentTag tag : tags) describe(out_, tag);
  started(answer);
}

void Recorder::start_recv(const TransferSpec& spec, Time now,
                          const Result<TransferHandle>& answer) {
  begin(RecordKind::kStartRecv);
  out_.time(now);
  TransferSpec copy = spec;
  describe(out_, copy);
  started(answer);
}

void Recorder::offer(TransferHandle handle, Bitmap::Run segments, Time now) {
  begin(RecordKind::kOffer);
  out_.time(now);
  out_.number(static_cast<std::uint64_t>(handle));
  out_.delta(RecordDelta::kSegment, segments.begin);
  out_.number(segments.size());
  finish();
}

void Recorder::cancel(TransferHandle handle, std::string_view cause, Time now) {
  begin(RecordKind::kCancel);
  out_.time(now);
  out_.number(static_cast<std::uint64_t>(handle));
  out_.text(cause);
  finish();
}

void Recorder::connection_lost(std::string_view cause, Time now) {
  begin(RecordKind::kConnectionLost);
  out_.time(now);
  out_.text(cause);
  finish();
}

void Recorder::on_data(const wire::DataHeader& header, bool marked, Time now, std::uint32_t path,
                       const Placement& answer) {
  begin(RecordKind::kData);
  out_.time(now);
  wire::DataHeader copy = header;
  describe(out_, copy);
  out_.number(marked ? 1 : 0);
  out_.number(path);
  out_.number(static_cast<std::uint64_t>(answer.verdict));
  if (answer.verdict == Placement::Verdict::kPlace) {
    out_.number(static_cast<std::uint64_t>(answer.handle));
    out_.delta(RecordDelta::kCookie, answer.cookie);
    out_.delta(RecordDelta::kOffset, static_cast<std::uint64_t>(answer.offset.count()));
  }
  finish();
}

void Recorder::on_control(const wire::ControlMessage& message, Time now) {
  begin(RecordKind::kControl);
  out_.time(now);
  out_.message(message);
  finish();
}

void Recorder::on_timeout(Time now) {
  begin(RecordKind::kTimeout);
  out_.time(now);
  finish();
}

void Recorder::poll_data(Time now, std::uint32_t max_segments, const DataBatch* answer) {
  begin(RecordKind::kPollData);
  out_.time(now);
  out_.number(max_segments);
  out_.number(answer == nullptr ? 0 : answer->count);
  if (answer != nullptr) {
    out_.number(static_cast<std::uint64_t>(answer->handle));
    out_.delta(RecordDelta::kCookie, answer->cookie);
    out_.number(answer->transfer);
    for (std::uint32_t i = 0; i < answer->count; ++i) {
      out_.delta(RecordDelta::kSegment, answer->segments[i]);
    }
    out_.delta(RecordDelta::kOffset, static_cast<std::uint64_t>(answer->first_offset.count()));
    out_.number(static_cast<std::uint64_t>(answer->segment_length.count()));
    out_.number(static_cast<std::uint64_t>(answer->last_length.count()));
    out_.delta(RecordDelta::kSequence, answer->first_sequence);
    out_.delta(RecordDelta::kSentUs, answer->sent_us);
    SegmentTag tag = answer->tag;
    describe(out_, tag);
    out_.number(answer->retransmission ? 1 : 0);
    out_.number(answer->path);
  }
  finish();
}

void Recorder::poll_control(const wire::ControlMessage* answer) {
  begin(RecordKind::kPollControl);
  out_.number(answer == nullptr ? 0 : 1);
  if (answer != nullptr) out_.message(*answer);
  finish();
}

void Recorder::poll_event(const TransferOutcome* answer) {
  begin(RecordKind::kPollEvent);
  out_.number(answer == nullptr ? 0 : 1);
  if (answer != nullptr) {
    out_.number(static_cast<std::uint64_t>(answer->handle));
    out_.number(static_cast<std::uint64_t>(answer->direction));
    out_.number(answer->key);
    out_.delta(RecordDelta::kCookie, answer->cookie);
    out_.text(answer->error);
    out_.number(static_cast<std::uint64_t>(answer->segments));
    out_.number(static_cast<std::uint64_t>(answer->arrived));
    out_.number(answer->retransmissions);
    out_.number(answer->rounds);
    out_.number(static_cast<std::uint64_t>(answer->started.since_start().ps()));
    out_.number(static_cast<std::uint64_t>(answer->ended.since_start().ps()));
    out_.number(answer->missing.size());
    for (const Bitmap::Run& run : answer->missing) {
      out_.number(run.begin);
      out_.number(run.size());
    }
  }
  finish();
}

void Recorder::next(RecordKind kind, std::optional<Time> answer) {
  begin(kind);
  out_.number(answer ? 1 : 0);
  if (answer) out_.number(static_cast<std::uint64_t>(answer->since_start().ps()));
  finish();
}

void Recorder::set_paths(std::uint32_t paths, Time now) {
  begin(RecordKind::kSetPaths);
  out_.time(now);
  out_.number(paths);
  finish();
}

void Recorder::on_data_end(std::uint64_t end_sequence, std::uint8_t queue, Time now,
                           std::uint32_t path) {
  begin(RecordKind::kDataEnd);
  out_.time(now);
  out_.delta(RecordDelta::kSequence, end_sequence);
  out_.number(queue);
  out_.number(path);
  finish();
}

void Recorder::end(const DlcpCounters& counters) {
  begin(RecordKind::kEnd);
  for (const std::uint64_t count :
       {counters.segments_sent, counters.segments_retransmitted, counters.segments_placed,
        counters.marks, counters.duplicate, counters.late, counters.stale, counters.bad_segment,
        counters.bad_length, counters.bad_messages, counters.stale_messages, counters.requests,
        counters.reports_sent, counters.reports_received, counters.grants_received,
        counters.wants_sent}) {
    out_.number(count);
  }
  if (sink_) give();
}

}  // namespace thalweg::proto
