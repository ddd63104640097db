// AggregateAction: what an aggregation stage tells its driver to do with a packet. The stage
// decides by headers alone; the driver owns the elements, one array of int32 per slot, and moves
// them.
#pragma once

#include <cstdint>

#include "wire/atp_packet.h"

namespace thalweg::switches {

// The driver first moves the payload into the slot, then emits, and then the slot may be reused.
// The stage has rewritten the packet's header to that of the packet to emit.
struct AggregateAction {
  // If an element saturates, the driver also sets `saturated` in the packet that it emits.
  using Payload = wire::AtpPayload;
  enum class Emit : std::uint8_t {
    kNothing,       // the packet ends here
    kPacket,        // the packet goes on with its own elements
    kSum,           // the packet goes on with the slot's elements
    kSumToWorkers,  // SwitchML: the slot's elements go to all workers
    kSumToSender,   // SwitchML: the slot's elements go back to the worker that sent the packet
  };
  // What happened, for counters and traces.
  enum class Cause : std::uint8_t {
    kStored,       // the packet claimed a slot
    kAdded,        // the packet was added, and more contributions are due
    kCompleted,    // the packet was the last contribution
    kResent,       // a retransmission that took no sum along
    kFlushed,      // a retransmission that took a slot's sum along
    kCollision,    // the slot serves another sequence
    kLimited,      // the job has as many slots as it may
    kTooLarge,     // the packet has more elements than a slot holds
    kNotHere,      // this switch does not aggregate the packet's level and group
    kAlone,        // the fan-in is one: nothing to wait for
    kDuplicate,    // the slot has all its contributions: dropped
    kOverlap,      // the slot has some of its contributions: the packet goes on alone
    kRepeated,     // SwitchML: the packet asked for a result that is complete
    kFreed,        // a parameter packet that freed slots
    kUnneeded,     // a parameter packet that found no slot to free, or an abort
    kUnknownJob,   // drop: the job is not known here
    kMismatch,     // drop: the packet differs from its slot in fan-in, elements or exponent, or has
                   // contributions that are too many with the slot's
    kStale,        // drop: SwitchML, the packet belongs to an earlier round
    kOutOfWindow,  // drop: SwitchML, the packet belongs to a round that cannot have begun
    kBadKind,      // drop: this stage does not know the packet's kind
    kFlagged,      // the packet arrived with the collision flag: it passes on
  };

  Payload payload = Payload::kNothing;
  Emit emit = Emit::kNothing;
  Cause cause = Cause::kUnknownJob;
  bool freed = false;      // the slot is free once the action is done
  std::uint32_t slot = 0;  // the slot that payload and emit refer to
};
inline constexpr int kAggregateCauseCount = 21;
const char* name_of(AggregateAction::Cause cause);

}  // namespace thalweg::switches
