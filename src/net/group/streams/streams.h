// Streams: the connections of one rank of a communicator to the others. It makes them (joiner.h),
// watches their sockets, shares memory with ranks of this host, and lets streams move when an
// interface or a cable dies (mover.h). It does not know what frames mean: it tells the protocol who
// is connected and who is gone, and its owner handles the frames.
//
// Its owner's mutex guards everything. Calls that take the lock release it while they wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/group/streams/connection.h"
#include "net/group/streams/joiner.h"
#include "net/io/fd.h"
#include "net/job/debug_log.h"
#include "proto/collective/collective.h"
#include "proto/collective/moving.h"

namespace thalweg::net {

class Mover;

struct StreamsOptions {
  JoinerOptions joiner;
  // Share memory with ranks of this host.
  bool share_memory = true;
  std::size_t ring_bytes = kRingBytes;
  // Connects the first stream or a lane to a lower rank; blocks until `until` at the latest. Any
  // thread may call it. An error blames the rank if the rank is the cause.
  std::function<Result<DialedStream>(int rank, std::uint32_t lane, Time until)> connect;
  // The ranks listened before this one knew their addresses: one that refuses a stream is gone.
  bool refusals_are_final = false;
  // Rate of this host's link, to which streams to other hosts keep; 0: what the interface says.
  std::int64_t line_bps = 0;
  DebugLog log;
  // Called when a stream goes on over another TCP connection. The owner's mutex is held, so it must
  // only take note.
  std::function<void()> on_moved_stream;
  // Called when another rank, or this one, has connected a stream for messages to this rank.
  std::function<void(int rank, CheckedStream stream)> on_message_stream;
};

// The connection to one rank, and what Streams notes of it.
struct StreamPeer {
  explicit StreamPeer(Rank rank) : connection(rank) {}

  // Epoll does not have the socket.
  static constexpr std::uint32_t kUnwatched = ~std::uint32_t{0};

  Connection connection;
  std::uint32_t watching = kUnwatched;        // events of the first stream's socket
  std::vector<std::uint32_t> lanes_watching;  // [lane]: events; 0: not watched
  bool dirty = false;                         // it is to be flushed
  std::optional<Time> hung_up;                // when its end was noticed while it waited
  proto::StreamPlaces places;                 // if this rank has made several streams
};

class Streams {
 public:
  using Lock = std::unique_lock<std::mutex>;
  class Owner : public Connection::Handler {
   public:
    // Does what follows from what happened: flushes, ends operations.
    virtual void settle() = 0;
    // Something is to be done that no socket announces: wakes whoever sleeps.
    virtual void wake() = 0;
    // The mutex was free for a while.
    virtual void catch_up() = 0;
  };

  // `epoll` watches the listeners already. All references must outlive the streams.
  Streams(StreamsOptions options, std::vector<Fd> listeners, Fd epoll, std::mutex& mutex,
          proto::Collective& core, Owner& owner);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Readable when handle_events() has something to do.
  [[nodiscard]] int epoll() const { return epoll_.get(); }
  [[nodiscard]] Connection& to(Rank rank) { return peers_[rank.index()]->connection; }
  [[nodiscard]] const Connection& to(Rank rank) const { return peers_[rank.index()]->connection; }
  // The connected ones.
  [[nodiscard]] const std::vector<StreamPeer*>& open() const { return open_; }
  // Whether this rank and these ranks exchange everything through shared memory.
  [[nodiscard]] bool share_memory_with(const std::vector<Rank>& ranks) const;
  // Whether all connected ranks are read through shared memory.
  [[nodiscard]] bool all_share_memory() const;
  // Connects to those of these ranks that are lower than this one.
  Status connect_to(Lock& lock, const std::vector<Rank>& ranks, Time until);

  // Reading and writing.
  // Reads one connection. True: something happened.
  bool read(StreamPeer& peer);
  bool read(Rank rank) { return read(*peers_[rank.index()]); }
  bool handle_events(int timeout_ms);
  // All sockets can be looked at one by one: they are few, and no stream is about to join.
  [[nodiscard]] bool few() const;
  // Marks the connection as dirty, so that flush() flushes it.
  void touch(Rank rank) { touch(*peers_[rank.index()]); }
  void touch(StreamPeer& peer);
  void flush();
  [[nodiscard]] bool has_dirty() const { return !dirty_.empty(); }
  void forget_closed();

  // Frames that are not the protocol's. False: this is none of them.
  bool on_frame(Connection& connection, const wire::Frame& frame);
  // Takes the frame that stalls a stream, if there is one that an operation takes now.
  void resume(Rank rank);
  // The communicator is broken: lets go of all data.
  void drop_data();
  // True when all frames other than data are with the peers' systems, or can never get there.
  [[nodiscard]] bool delivered();

  // Asks all peers for bells, before a thread sleeps. True: there is something to do already.
  [[nodiscard]] bool prepare_sleep();
  void wake_up();
  // True: no connection has something to do. Never true with a connection without shared memory,
  // because its socket cannot be looked at cheaply.
  [[nodiscard]] bool is_quiet() const;

  // Moving. When look() is to be called while operations run; none: never.
  [[nodiscard]] std::optional<Time> next_look() const;
  void look(Time now);
  // No stream moves any more.
  void stop_moving();

 private:
  friend class Mover;

  // Returns a stream on which the hello was sent. Dials in short tries, because the communicator
  // may break meanwhile.
  Result<GreetedStream> dial(Lock& lock, Rank peer, std::uint32_t lane, Time until);
  // Makes the connection with a stream that was dialed.
  Status take(Lock& lock, StreamPeer& peer, GreetedStream& stream, Time until);
  Status connect_lanes(Lock& lock, StreamPeer& peer, std::size_t streams, std::uint32_t first_way,
                       Time until);
  void on_joined(Joiner::Joined joined);
  void adopt(StreamPeer& peer, CheckedStream stream);
  void adopt_lane(StreamPeer& peer, std::uint32_t number, Fd fd,
                  const std::optional<wire::SessionProof>& answer);
  void offer_memory(Connection& connection);
  void take_offer(Connection& connection, const proto::OfferFrame& offer);
  void on_socket(StreamPeer& peer, int fd, std::uint32_t events);
  // The peer has ended. Breaks the connection off once nothing more arrives. `moved`: something was
  // read just now.
  void hang_up(StreamPeer& peer, bool moved);
  // Call after anything that may have changed the connection: tells the protocol if it is over, and
  // epoll which events are wanted now.
  void attend(StreamPeer& peer);
  void watch(StreamPeer& peer);
  void watch_lanes(StreamPeer& peer);

  StreamsOptions options_;
  Fd epoll_;
  std::mutex& mutex_;
  proto::Collective& core_;
  Owner& owner_;
  Joiner joiner_;
  std::vector<std::unique_ptr<StreamPeer>> peers_;  // [rank]
  std::vector<StreamPeer*> open_;
  std::vector<StreamPeer*> dirty_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<Mover> mover_;
};

}  // namespace thalweg::net
