// RecordedEndpoint: a DlcpEndpoint with the same verbs, whose calls a Recorder may write down. A
// driver that calls its endpoint only through this class makes recordings that replay
// (proto/dlcp/record/replay.h). Without a recorder each call costs one well-predicted branch.
//
// Every call that changes the endpoint is recorded, and every answer that a driver acts on except
// settled() and options(), which follow from the others. What an endpoint with a GrantScheduler
// answers also depends on the host's other endpoints, so it cannot be recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <thalweg/result.h>

#include "base/check.h"
#include "proto/dlcp/endpoint.h"
#include "proto/dlcp/record/recorder.h"

namespace thalweg::proto {

class RecordedEndpoint {
 public:
  // `grants` and `peer` as DlcpEndpoint takes them.
  explicit RecordedEndpoint(const DlcpOptions& options, GrantScheduler* grants = nullptr,
                            std::uint32_t peer = 0)
      : endpoint_(options, grants, peer), grants_(grants != nullptr) {}

  // Starts a recording. Requires that no verb was called before, and no scheduler of grants.
  void record(RecordSink sink) {
    CHECK(!grants_, "an endpoint that gives grants cannot be recorded");
    recorder_ = std::make_unique<Recorder>(endpoint_.options(), std::move(sink));
  }
  // Ends the recording: no call after this is recorded.
  void end_record() {
    if (recorder_) recorder_->end(endpoint_.counters());
    recorder_.reset();
  }
  // Null while nothing is recorded.
  [[nodiscard]] Recorder* recorder() const { return recorder_.get(); }

  // `tags`: one for all segments, or one per segment; they must live until the transfer's event.
  Result<TransferHandle> start_send(const TransferSpec& spec, std::span<const SegmentTag> tags,
                                    Time now) {
    auto handle = endpoint_.start_send(
        spec, tags.size() == 1 ? TagSource(tags.front()) : TagSource(tags), now);
    if (recorder_) recorder_->start_send(spec, tags, now, handle);
    return handle;
  }
  Result<TransferHandle> start_recv(const TransferSpec& spec, Time now) {
    auto handle = endpoint_.start_recv(spec, now);
    if (recorder_) recorder_->start_recv(spec, now, handle);
    return handle;
  }
  void offer(TransferHandle handle, Bitmap::Run segments, Time now) {
    endpoint_.offer(handle, segments, now);
    if (recorder_) recorder_->offer(handle, segments, now);
  }
  void cancel(TransferHandle handle, std::string_view cause, Time now) {
    endpoint_.cancel(handle, cause, now);
    if (recorder_) recorder_->cancel(handle, cause, now);
  }
  void connection_lost(std::string_view cause, Time now, ErrorCode code = ErrorCode::kPeerLost) {
    endpoint_.connection_lost(cause, now, code);
    if (recorder_) recorder_->connection_lost(cause, now);
  }

  Placement on_data(const wire::DataHeader& header, bool marked, Time now, std::uint32_t path = 0) {
    const Placement placement = endpoint_.on_data(header, marked, now, path);
    if (recorder_) [[unlikely]] {
      recorder_->on_data(header, marked, now, path, placement);
    }
    return placement;
  }
  void on_data_end(std::uint64_t end_sequence, std::uint8_t queue, Time now,
                   std::uint32_t path = 0) {
    endpoint_.on_data_end(end_sequence, queue, now, path);
    if (recorder_) recorder_->on_data_end(end_sequence, queue, now, path);
  }
  void on_control(const wire::ControlMessage& message, Time now) {
    endpoint_.on_control(message, now);
    if (recorder_) recorder_->on_control(message, now);
  }
  void on_timeout(Time now) {
    endpoint_.on_timeout(now);
    if (recorder_) recorder_->on_timeout(now);
  }

  bool poll_data(Time now, std::uint32_t max_segments, DataBatch& out) {
    const bool some = endpoint_.poll_data(now, max_segments, out);
    if (recorder_) recorder_->poll_data(now, max_segments, some ? &out : nullptr);
    return some;
  }
  bool poll_control(wire::ControlMessage& out) {
    const bool some = endpoint_.poll_control(out);
    if (recorder_) recorder_->poll_control(some ? &out : nullptr);
    return some;
  }
  bool poll_event(TransferOutcome& out) {
    const bool some = endpoint_.poll_event(out);
    if (recorder_) recorder_->poll_event(some ? &out : nullptr);
    return some;
  }
  std::optional<Time> next_timeout() {
    const std::optional<Time> next = endpoint_.next_timeout();
    if (recorder_) recorder_->next(RecordKind::kNextTimeout, next);
    return next;
  }
  std::optional<Time> next_timer() {
    const std::optional<Time> next = endpoint_.next_timer();
    if (recorder_) recorder_->next(RecordKind::kNextTimer, next);
    return next;
  }

  void set_paths(std::uint32_t paths, Time now) {
    endpoint_.set_paths(paths, now);
    if (recorder_) recorder_->set_paths(paths, now);
  }

  // These change nothing and are not recorded.
  [[nodiscard]] const DlcpEndpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] std::optional<SendKey> next_key() const { return endpoint_.next_key(); }
  [[nodiscard]] bool settled() const { return endpoint_.settled(); }
  [[nodiscard]] bool data_vanishes() const { return endpoint_.data_vanishes(); }
  [[nodiscard]] const DlcpOptions& options() const { return endpoint_.options(); }
  [[nodiscard]] const DlcpCounters& counters() const { return endpoint_.counters(); }

 private:
  DlcpEndpoint endpoint_;
  bool grants_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace thalweg::proto
