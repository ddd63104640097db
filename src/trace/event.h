// What happened in a run, as typed events. Each event names its fields once, in for_each_field, in
// the order in which every writer (writer.h) shows them; adding a field or an event is a change
// here and a track for it in chrome.cc.
//
// Strings are views: they must live until the call that takes the event returns. An id that is
// not valid or an empty string means "none", and writers leave the field out.
#pragma once

#include <string_view>
#include <variant>

#include "base/units.h"

namespace thalweg {

// Spans of one kind at one place (a rank's work, transfers from one rank to another) that overlap
// in time have different lanes.
using Lane = Id<struct LaneTag>;

// A chunk or a flow on its way from one rank to another. Those between the same two ranks, in the
// same direction and lane, do not overlap.
struct TransferEvent {
  static constexpr std::string_view kName = "transfer";
  Time start;
  Time end;
  Rank source;
  Rank target;
  ChunkIndex chunk;
  Bytes size;
  std::string_view job = {};
  Lane lane = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("source", source);
    visit("target", target);
    visit("chunk", chunk);
    visit("bytes", size);
    visit("job", job);
    visit("lane", lane);
  }
};

// A rank at work on something of its own: the forward pass of a layer, a reduction.
struct ComputeEvent {
  static constexpr std::string_view kName = "compute";
  Time start;
  Time end;
  Rank rank;
  std::string_view what;
  std::string_view job = {};
  Lane lane = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("rank", rank);
    visit("what", what);
    visit("job", job);
    visit("lane", lane);
  }
};

// The value of a quantity, from now until the next sample.
struct CounterEvent {
  static constexpr std::string_view kName = "counter";
  Time at;
  Rank rank;  // none: of the whole network
  std::string_view counter;
  double value = 0;  // finite

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("at_us", at);
    visit("rank", rank);
    visit("counter", counter);
    visit("value", value);
  }
};

// A moment worth a mark: an iteration begins, a peer is declared dead.
struct MarkEvent {
  static constexpr std::string_view kName = "mark";
  Time at;
  Rank rank;  // none: of the whole network
  std::string_view what;

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("at_us", at);
    visit("rank", rank);
    visit("what", what);
  }
};

// A packet that ended here.
struct DropEvent {
  static constexpr std::string_view kName = "drop";
  Time at;
  std::string_view place;  // a port or an endpoint
  std::string_view reason;
  Bytes size;

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("at_us", at);
    visit("place", place);
    visit("reason", reason);
    visit("bytes", size);
  }
};

using Event = std::variant<TransferEvent, ComputeEvent, CounterEvent, MarkEvent, DropEvent>;

}  // namespace thalweg
