#include "switch/aggregation/aggregate_action.h"

namespace thalweg::switches {

const char* name_of(AggregateAction::Cause cause) {
  switch (cause) {
    case AggregateAction::Cause::kStored:
      return "stored";
    case AggregateAction::Cause::kAdded:
      return "added";
    case AggregateAction::Cause::kCompleted:
      return "completed";
    case AggregateAction::Cause::kResent:
      return "resent";
    case AggregateAction::Cause::kFlushed:
      return "flushed";
    case AggregateAction::Cause::kCollision:
      return "collision";
    case AggregateAction::Cause::kLimited:
      return "limited";
    case AggregateAction::Cause::kTooLarge:
      return "too-large";
    case AggregateAction::Cause::kNotHere:
      return "not-here";
    case AggregateAction::Cause::kAlone:
      return "alone";
    case AggregateAction::Cause::kDuplicate:
      return "duplicate";
    case AggregateAction::Cause::kOverlap:
      return "overlap";
    case AggregateAction::Cause::kRepeated:
      return "repeated";
    case AggregateAction::Cause::kFreed:
      return "freed";
    case AggregateAction::Cause::kUnneeded:
      return "unneeded";
    case AggregateAction::Cause::kUnknownJob:
      return "unknown-job";
    case AggregateAction::Cause::kMismatch:
      return "mismatch";
    case AggregateAction::Cause::kStale:
      return "stale";
    case AggregateAction::Cause::kOutOfWindow:
      return "out-of-window";
    case AggregateAction::Cause::kBadKind:
      return "bad-kind";
    case AggregateAction::Cause::kFlagged:
      return "flagged";
  }
  return "?";
}

}  // namespace thalweg::switches
