// Typed events say what happened in a run. Each event names its fields once, in for_each_field, in
// the order in which every writer (writer.h) shows them. A new field changes only this file; a new
// event also needs a track in chrome.cc.
//
// Strings are views: they must live until the call that takes the event returns. An invalid id or
// an empty string means "none", and writers leave the field out.
#pragma once

#include <string_view>
#include <variant>

#include "base/units.h"

namespace thalweg::trace {

// Spans of one kind in one place (one rank's work, or the transfers from one rank to another) have
// different rows if they overlap in time.
using Row = Id<struct RowTag>;
// The place of a call among the collectives of its communicator: the same on all ranks.
using CallNumber = Id<struct CallNumberTag>;
// How many there were.
using Count = Id<struct CountTag>;

// A chunk or a flow travels from one rank to another. Transfers with the same source, target and
// row do not overlap.
struct TransferEvent {
  static constexpr std::string_view kName = "transfer";
  Time start;
  Time end;
  Rank source;
  Rank target;
  ChunkIndex chunk;
  Bytes size;
  std::string_view job = {};
  Row row = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("source", source);
    visit("target", target);
    visit("chunk", chunk);
    visit("bytes", size);
    visit("job", job);
    visit("lane", row);  // "lane" is the field's name in files
  }
};

// A rank computes: the forward pass of a layer, a reduction.
struct ComputeEvent {
  static constexpr std::string_view kName = "compute";
  Time start;
  Time end;
  Rank rank;
  std::string_view what;
  std::string_view job = {};
  Row row = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("rank", rank);
    visit("what", what);
    visit("job", job);
    visit("lane", row);  // "lane" is the field's name in files
  }
};

// A rank's call of a communicator, from the call until it was over.
struct OperationEvent {
  static constexpr std::string_view kName = "operation";
  Time start;
  Time end;
  Rank rank;
  std::string_view call;
  Bytes size;
  std::string_view scheme = {};
  std::string_view transport = {};
  std::string_view group = {};
  CallNumber number = {};
  Duration queued = {};  // from the call until it started
  std::string_view outcome = {};
  Row row = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("rank", rank);
    visit("call", call);
    visit("bytes", size);
    visit("scheme", scheme);
    visit("transport", transport);
    visit("group", group);
    visit("number", number);
    visit("queued_us", queued);
    visit("outcome", outcome);
    visit("lane", row);
  }
};

// A part of a rank's call, as that rank saw it: a transfer of its plan to or from another rank,
// from its first bytes to its last, or a time in which the other rank's data waited ("stall").
struct StepEvent {
  static constexpr std::string_view kName = "step";
  Time start;
  Time end;
  Rank rank;
  Rank peer;
  std::string_view step;  // "send", "receive" or "stall"
  ChunkIndex chunk = {};
  Bytes size = {};
  std::string_view group = {};
  CallNumber number = {};  // of the call
  Row row = {};

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("start_us", start);
    visit("end_us", end);
    visit("rank", rank);
    visit("peer", peer);
    visit("step", step);
    visit("chunk", chunk);
    visit("bytes", size);
    visit("group", group);
    visit("number", number);
    visit("lane", row);
  }
};

// Something of a rank's call was lost on the way to or from another rank. The rank noticed it at
// this time.
struct LossEvent {
  static constexpr std::string_view kName = "loss";
  Time at;
  Rank rank;
  Rank peer;
  std::string_view loss;  // "sent again" (packets) or "never came" (elements)
  Count count = {};
  std::string_view group = {};
  CallNumber number = {};  // of the call

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("at_us", at);
    visit("rank", rank);
    visit("peer", peer);
    visit("loss", loss);
    visit("count", count);
    visit("group", group);
    visit("number", number);
  }
};

// A quantity has this value from now until its next event.
struct CounterEvent {
  static constexpr std::string_view kName = "counter";
  Time at;
  Rank rank;  // none: the whole network
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

// Something notable happened: an iteration begins, a peer is declared dead.
struct MarkEvent {
  static constexpr std::string_view kName = "mark";
  Time at;
  Rank rank;  // none: the whole network
  std::string_view what;

  template <class Visitor>
  void for_each_field(Visitor&& visit) const {
    visit("at_us", at);
    visit("rank", rank);
    visit("what", what);
  }
};

// A packet was dropped.
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

using Event = std::variant<TransferEvent, ComputeEvent, OperationEvent, StepEvent, LossEvent,
                           CounterEvent, MarkEvent, DropEvent>;

}  // namespace thalweg::trace
