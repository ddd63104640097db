// StreamNotes: what the streams of a communicator tell the timeline about its operations
// (operation/step_notes.h): data that waited for a call, and segments that the kernel sent again.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/units.h"
#include "net/group/operation/operation.h"
#include "net/group/streams/streams.h"

namespace thalweg::net {

class StreamNotes {
 public:
  // `wanted`: a timeline is written.
  explicit StreamNotes(bool wanted) : wanted_(wanted) {}

  // The peer's data waits for a call of this rank; the call has come.
  void on_stall(Rank peer);
  void on_resumed(const Operation::State& op, Rank peer);
  // The operation is over. `over_streams`: its data went over streams.
  void on_end(const Operation::State& op, const Streams& streams, bool over_streams);

 private:
  bool wanted_;
  std::map<Rank, Time> stalled_since_;
  std::vector<std::int64_t> sent_again_;  // [rank]: as of the last operation
};

}  // namespace thalweg::net
