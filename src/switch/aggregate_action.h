// What an aggregation stage tells its driver to do with a packet. The stage decides by headers
// alone; the driver owns the elements, an array of int32 a slot, and moves them.
#pragma once

#include <cstdint>

#include "wire/atp_packet.h"

namespace thalweg {

// In this order: the payload into the slot, then what is emitted, then the slot is free. The stage
// has rewritten the packet's header to that of the packet to emit.
struct AggregateAction {
  // If an element saturates, the driver also sets `saturated` in what it emits.
  using Payload = AtpPayload;
  enum class Emit : std::uint8_t {
    kNothing,       // the packet ends here
    kPacket,        // it goes on with its own elements
    kSum,           // it goes on with the slot's elements
    kSumToWorkers,  // SwitchML: the slot's elements to all workers
    kSumToSender,   // SwitchML: the slot's elements back to the worker that sent the packet
  };
  // What happened, for counters and traces.
  enum class Cause : std::uint8_t {
    kStored,       // claimed a slot
    kAdded,        // and more are awaited
    kCompleted,    // the last contribution came
    kResent,       // a retransmission that found no slot
    kFlushed,      // a retransmission that took a slot's sum along
    kCollision,    // the slot is another's
    kLimited,      // the job has as many slots as it may
    kTooLarge,     // more elements than a slot holds
    kNotHere,      // nothing to be done at this switch
    kAlone,        // a fan-in of one: nothing to wait for
    kDuplicate,    // was added before
    kOverlap,      // some of its contributions were added before: goes on alone
    kRepeated,     // SwitchML: asked for a result that is there
    kFreed,        // a parameter packet that freed slots
    kUnneeded,     // a parameter packet that found none
    kUnknownJob,   // drop
    kMismatch,     // drop: differs from its slot in fan-in, elements or exponent
    kStale,        // drop: SwitchML, of an earlier round
    kOutOfWindow,  // drop: SwitchML, of a round that cannot have begun
    kBadKind,      // drop: not a kind that this stage knows
    kFlagged,      // came with the collision flag: passes
  };

  Payload payload = Payload::kNothing;
  Emit emit = Emit::kNothing;
  Cause cause = Cause::kUnknownJob;
  bool freed = false;      // the slot is free once this is done
  std::uint32_t slot = 0;  // where payload or emit speak of one
};
inline constexpr int kAggregateCauseCount = 21;
const char* name_of(AggregateAction::Cause cause);

}  // namespace thalweg
