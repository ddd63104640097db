// Exchange: drives proto::Collective over the streams of one rank. The protocol decides what the
// ranks say to each other, in which order data moves, who is blamed and when an operation fails.
// The exchange sends its frames, moves bytes between the streams and the memory of operations, and
// tells it what came. It has no thread: its owner says when to look.
//
// Its owner's mutex guards everything.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/group/operation/stream_operation.h"
#include "net/group/streams/stream_notes.h"
#include "net/group/streams/streams.h"
#include "proto/collective/collective.h"

namespace thalweg::net {

class Exchange final : private Streams::Owner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The protocol says that the call is over, and how.
    virtual void on_over(proto::CollectiveCall& call, Status status) = 0;
    // The communicator broke, for the first time.
    virtual void on_broken(const Error& why) = 0;
    // As in Streams::Owner.
    virtual void wake() = 0;
    virtual void catch_up() = 0;
  };

  // As Streams takes them. `notes_steps`: a timeline is written, and operations may have notes.
  Exchange(const StreamsOptions& options, bool notes_steps, std::vector<Fd> listeners, Fd epoll,
           std::mutex& mutex, Owner& owner);

  [[nodiscard]] proto::Collective& core() { return core_; }
  [[nodiscard]] const proto::Collective& core() const { return core_; }
  [[nodiscard]] Streams& streams() { return streams_; }
  [[nodiscard]] const Streams& streams() const { return streams_; }

  // Begins to move the data of an operation that the protocol has started. It may be over when this
  // returns.
  void begin(StreamOperation& op);
  // The operation is over, and its data was moved by `begin`, unless it is over DLCP.
  void end(PlannedOperation& op);
  // Reads and writes as much as is possible without waiting. True: something happened.
  bool poll();
  // The same for the stream that the operation waits for, if it runs alone.
  bool poll_for(const PlannedOperation& op);
  // Does what the protocol wants: sends its frames, flushes the streams, ends what is done.
  void settle() override;
  // Breaks the communicator because this rank leaves.
  void leave();

 private:
  Streamed* on_data(Connection& connection, const wire::Frame& frame) override;
  void on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) override;
  void on_progress(Streamed& streamed) override;
  void on_spoiled(Connection& connection) override;
  bool next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) override;
  void wake() override { owner_.wake(); }
  void catch_up() override { owner_.catch_up(); }
  // The first time that the communicator is found broken: says so, and lets go of all data.
  void notice_break();
  void send_control();
  // A running operation misses a stream, for which the listener must be looked at.
  [[nodiscard]] bool misses_streams();

  const StreamsOptions options_;
  Owner& owner_;
  proto::Collective core_;
  bool noticed_ = false;  // notice_break() has seen that core_ is broken
  Streams streams_;
  StreamNotes notes_;
  std::vector<std::unique_ptr<exec::StreamExecutor>> spare_;  // executors that can be used again
};

}  // namespace thalweg::net
