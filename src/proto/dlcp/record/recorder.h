// Recorder: writes down every call of an endpoint and its answer, one record per call, in order.
// RecordedEndpoint owns it and calls it. docs/recording.md has the grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include <thalweg/result.h>

#include "proto/dlcp/endpoint.h"
#include "proto/dlcp/record/record_codec.h"

namespace thalweg::proto {

// Receives whole records, as many as make a block.
using RecordSink = std::function<void(std::span<const std::byte> content)>;

class Recorder {
 public:
  // Without a sink (an empty function), pending() keeps everything until clear().
  Recorder(const DlcpOptions& options, RecordSink sink);

  // One function per verb, called after the endpoint's.
  void start_send(const TransferSpec& spec, std::span<const SegmentTag> tags, Time now,
                  const Result<TransferHandle>& answer);
  void start_recv(const TransferSpec& spec, Time now, const Result<TransferHandle>& answer);
  void offer(TransferHandle handle, Bitmap::Run segments, Time now);
  void cancel(TransferHandle handle, std::string_view cause, Time now);
  void connection_lost(std::string_view cause, Time now);
  void on_data(const wire::DataHeader& header, bool marked, Time now, std::uint32_t path,
               const Placement& answer);
  void on_data_end(std::uint64_t end_sequence, std::uint8_t queue, Time now, std::uint32_t path);
  void on_control(const wire::ControlMessage& message, Time now);
  void on_timeout(Time now);
  // A null `answer` means that the poll returned false; a none one, that no timeout was set.
  void poll_data(Time now, std::uint32_t max_segments, const DataBatch* answer);
  void poll_control(const wire::ControlMessage* answer);
  void poll_event(const TransferOutcome* answer);
  void next(RecordKind kind, std::optional<Time> answer);
  void set_paths(std::uint32_t paths, Time now);
  // The last call: writes the counters, and gives the sink what is left.
  void end(const DlcpCounters& counters);

  [[nodiscard]] std::span<const std::byte> pending() const { return out_.bytes(); }
  [[nodiscard]] const RecordDeltas& deltas() const { return out_.deltas(); }
  void clear() { out_.clear(); }

 private:
  void begin(RecordKind kind) { out_.number(static_cast<std::uint64_t>(kind)); }
  void finish() {
    if (sink_ && out_.bytes().size() >= kRecordBlock) give();
  }
  void give();
  void started(const Result<TransferHandle>& answer);

  RecordEncoder out_;
  RecordSink sink_;
};

}  // namespace thalweg::proto
