// The receiver's end of a flow over TCP and similar transports. It is kept in the shard of the
// flow's target, apart from the sender's end.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/core/network.h"

namespace thalweg::sim {

struct IncomingFlow {
  explicit IncomingFlow(const FlowSpec& flow_spec) : receiver(flow_spec.bytes), spec(flow_spec) {}

  Receiver receiver;
  FlowId id;
  std::uint32_t header_bytes = 0;
  std::uint32_t ack_path = 0;  // a hash, or the next label
  std::uint8_t ack_priority = 0;
  bool fixed_path = false;  // the path is a label that every packet carries
  bool ended = false;
  std::int64_t notice_ps = 0;  // how long a notice takes from one end to the other
  Time start;
  FlowSpec spec;
  std::function<void()> arrived;  // called when the flow ends; may be empty
};

}  // namespace thalweg::sim
