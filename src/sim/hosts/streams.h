// Streams: TCP connections that carry messages piece by piece (FlowSpec::watcher), as the streams
// of a communicator carry frames. A stream runs from one host to another; its bytes are frames,
// each a part of a message that could leave when the stream had nothing else to send. This class
// knows which bytes belong to which message; Hosts drives the stream's sender and receiver.
//
// Life of a message: add() → offer(), as its pieces become ready → next_frame(), when the stream
// has sent all that it was given → on_prefix(), which tells the message's watcher of its pieces and
// returns the message when it is complete.
//
// Invariants:
// 1. The frames of a stream lie behind each other, and those of a message hold its bytes in order.
// 2. A message is in its stream's line iff some of its bytes were offered and are in no frame.
// 3. A message lives from add() until on_prefix() has returned it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "exec/extent.h"
#include "sim/core/network.h"

namespace thalweg::sim {

class Streams {
 public:
  struct Message {
    FlowId id;
    FlowSpec spec;
    Time start;
    std::uint32_t stream = 0;
    std::uint32_t pieces = 0;
    std::uint32_t told = 0;      // pieces that the watcher knows of
    std::uint64_t offered = 0;   // bytes that may leave
    std::uint64_t framed = 0;    // bytes that are in a frame
    std::uint64_t received = 0;  // bytes
  };

  // The stream for messages like this one; none: there is none yet.
  [[nodiscard]] std::optional<std::uint32_t> find(const FlowSpec& spec) const;
  // Makes that stream, whose packets belong to flow `carrier`.
  std::uint32_t make(const FlowSpec& spec, FlowId carrier);
  [[nodiscard]] FlowId carrier(std::uint32_t stream) const { return streams_[stream].carrier; }

  void add(FlowId id, const FlowSpec& spec, std::uint32_t stream, Time now);
  // Returns the message's stream if it may have more to send now; none if the message is over.
  std::optional<std::uint32_t> offer(FlowId id, exec::Run pieces);
  // Appends a frame with all that the most urgent message in line may send. Returns its bytes, or 0
  // if no message is in line.
  std::uint64_t next_frame(std::uint32_t stream);
  // The stream's bytes below `end` have arrived. Calls done(message) for each message that is
  // complete; it and the watchers may call any function of this class.
  template <class Done>
  void on_prefix(std::uint32_t stream, std::uint64_t end, const Done& done);

  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  // Appends a message for each stream that keeps state though all messages are over.
  void check_idle(std::vector<std::string>& violations) const;

 private:
  struct Frame {
    Message* message = nullptr;
    std::uint64_t end = 0;  // in the stream
  };
  // Where a message stands in line.
  using Place = std::tuple<std::int64_t, std::uint64_t, FlowId>;
  struct Stream {
    FlowId carrier;
    std::uint64_t framed = 0;    // bytes of all frames so far
    std::uint64_t received = 0;  // bytes that have arrived in order
    std::set<Place> line;
    std::deque<Frame> frames;  // those that have not arrived
  };
  struct Ends {
    const TransportFactory* transport = nullptr;
    Rank source;
    Rank target;
    std::uint64_t tag = 0;
    bool operator==(const Ends&) const = default;
  };
  struct EndsHash {
    std::size_t operator()(const Ends& ends) const;
  };

  static Ends ends_of(const FlowSpec& spec) {
    return {spec.transport, spec.source, spec.target, spec.tag};
  }
  static Place place_of(const Message& message) {
    return {message.spec.urgency, message.spec.order, message.id};
  }
  // Tells the message's watcher of pieces that it does not know of and that are complete.
  static void tell(Message& message);

  std::vector<Stream> streams_;
  std::unordered_map<Ends, std::uint32_t, EndsHash> index_;
  std::unordered_map<FlowId, std::unique_ptr<Message>> messages_;
};

template <class Done>
void Streams::on_prefix(std::uint32_t stream, std::uint64_t end, const Done& done) {
  while (streams_[stream].received < end) {
    Stream& s = streams_[stream];
    const Frame frame = s.frames.front();
    const std::uint64_t until = std::min(end, frame.end);
    frame.message->received += until - s.received;
    s.received = until;
    if (until == frame.end) s.frames.pop_front();
    const bool complete = frame.message->received == frame.message->spec.bytes;
    tell(*frame.message);
    if (!complete) continue;
    const std::unique_ptr<Message> over = std::move(messages_.at(frame.message->id));
    messages_.erase(over->id);
    done(*over);
  }
}

}  // namespace thalweg::sim
