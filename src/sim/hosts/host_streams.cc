// Messages on streams: what Hosts does for flows with a watcher over TCP.
#include <utility>

#include "base/check.h"
#include "sim/hosts/host.h"

namespace thalweg::sim {

void Hosts::start_message(FlowId id, const FlowSpec& spec) {
  std::optional<std::uint32_t> stream = streams_.find(spec);
  if (!stream) {
    const FlowId carrier(static_cast<std::int32_t>(flows_.size()));
    stream = streams_.make(spec, carrier);
    FlowSpec of_stream = spec;
    of_stream.bytes = 0;
    flows_.push_back(std::make_unique<Flow>(of_stream));
    Flow& flow = *flows_.back();
    std::unique_ptr<StreamSender> sender = spec.transport->make_stream();
    CHECK(sender != nullptr, "{} has no streams", spec.transport->describe());
    flow.stream_sender = sender.get();
    flow.stream = *stream;
    flow.sender = std::move(sender);
    prepare(flow);
  }
  streams_.add(id, spec, *stream, events_.now());
}

void Hosts::offer(FlowId id, exec::Run pieces) {
  if (const auto stream = streams_.offer(id, pieces); stream) {
    const FlowId carrier = streams_.carrier(*stream);
    drive(carrier, *flows_[carrier.index()]);
  } else {
    dlcp_.offer(id, pieces);
  }
}

// A stream gets its next frame when it has sent all before, so what waits can still be overtaken.
bool Hosts::poll(Flow& flow, SegmentToSend& segment) {
  if (flow.sender->poll_transmit(events_.now(), segment)) return true;
  if (flow.stream_sender == nullptr || flow.stream_sender->unsent() > 0) return false;
  const std::uint64_t bytes = streams_.next_frame(flow.stream);
  if (bytes == 0) return false;
  flow.stream_sender->extend(bytes);
  flow.receiver.extend(bytes);
  flow.spec.bytes += bytes;
  return flow.sender->poll_transmit(events_.now(), segment);
}

// Counters of a stream go to the message that ends. Packets of a stream need not begin with one of
// its messages, so the oracle leaves their headers out.
void Hosts::end_message(Flow& carrier, const Streams::Message& message) {
  --active_;
  const SenderCounters& now = carrier.sender->counters();
  const SenderCounters& before = carrier.counted;
  FlowResult result;
  result.id = message.id;
  result.spec = message.spec;
  result.start = message.start;
  result.end = events_.now();
  result.counters = {.segments = now.segments - before.segments,
                     .retransmissions = now.retransmissions - before.retransmissions,
                     .timeouts = now.timeouts - before.timeouts,
                     .marks_echoed = now.marks_echoed - before.marks_echoed};
  carrier.counted = now;
  report(result, {.bytes = message.spec.bytes,
                  .segment = static_cast<std::uint32_t>(message.spec.transport->piece_bytes()),
                  .smallest = 1,
                  .uniform = false});
}

}  // namespace thalweg::sim
