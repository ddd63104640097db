// The stream to one other rank: frames in and out. It knows nothing of what they mean; a Handler
// does.
//
// Reading: data goes straight to where the executor wants it, or through a small buffer. A frame
// that nobody can take yet stalls the stream, until resume(). Writing: whole frames, one after the
// other; of data frames the payload is sent from the tensor. Both sides of it never block.
//
// Two ranks of one host may share memory (shared_link.h). Each then says kShared, once, and all
// frames after that one go through its ring; on the socket there are bells for a peer that sleeps,
// and its end. Until both have said so, one way may be by the socket and the other by the ring.
//
// Two ranks with several interfaces, or several paths between them, have lanes besides
// (connection_lanes.cc): streams that carry payloads of large data frames and nothing else. The
// frame's header, on the first stream, says on which lane its payload is next (kLaneData). So
// frames begin and are read in one order, as without lanes; what other lanes bring meanwhile waits
// in the system's buffers. A lane with little unsent gets the next payload: a slow one gets fewer.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "net/collective/lanes.h"
#include "net/collective/shared_link.h"
#include "net/fd.h"
#include "wire/authenticate.h"
#include "wire/frame.h"

namespace thalweg {

class Connection {
 public:
  using Op = Operation::State;

  // What a data frame to be sent is part of.
  struct Outgoing {
    Op* op = nullptr;
    std::uint32_t send = 0;
    std::span<const std::byte> bytes;
  };
  class Handler {
   public:
    virtual ~Handler() = default;
    // The header of a data frame arrived. The operation that takes its payload; null: stall. A
    // frame that makes no sense: break_off() the connection, and null.
    virtual Op* on_data(Connection& connection, const Frame& frame) = 0;
    // Any other frame, with its payload.
    virtual void on_frame(Connection& connection, const Frame& frame, const std::string& text) = 0;
    // The operation has received or sent something.
    virtual void on_progress(Op& op) = 0;
    // The next data frame to send; false: none now.
    virtual bool next_data(Connection& connection, Frame& frame, Outgoing& out) = 0;
  };

  explicit Connection(Rank peer) : peer_(peer) {}

  [[nodiscard]] Rank peer() const { return peer_; }
  [[nodiscard]] bool connected() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Takes a connected, non-blocking socket.
  void attach(Fd fd);
  // Before anything is read: the peer must say this before its frames, or it is broken off.
  void expect(const SessionProof& proof) { answer_due_.assign(proof.begin(), proof.end()); }

  // A lane, from 1 on. False: there is that one already, or all is over. `due`: what the peer must
  // say first.
  bool add_lane(std::uint32_t number, Fd fd, std::vector<std::byte> due);
  [[nodiscard]] std::vector<Lane>& lanes() { return lanes_; }
  [[nodiscard]] bool has_lanes() const { return !lanes_.empty(); }
  [[nodiscard]] bool owns(int fd) const {
    return connected() && (fd_.get() == fd || std::ranges::any_of(lanes_, [fd](const Lane& lane) {
                             return lane.fd.get() == fd;
                           }));
  }
  // Which lane the next bytes come from; 0: none, they come by the first stream.
  [[nodiscard]] std::uint32_t source() const { return source_; }
  // The next bytes are those of a lane that we do not have yet.
  [[nodiscard]] bool misses_lane() const {
    return source_ > lanes_.size() || (source_ > 0 && !lanes_[source_ - 1].fd.valid());
  }
  // Bytes of it that a stream has, and that its executor has not been told were sent.
  [[nodiscard]] std::size_t lent(const Op* op, std::uint32_t send) const {
    return loans_.of(op, send);
  }

  // Reads once, into memory of an operation or `buffer`. False: there was nothing, or it is stalled
  // or over.
  bool read(std::span<std::byte> buffer, Handler& handler);
  // A stalled frame may be taken now.
  void resume(Handler& handler);
  // Sends as much as the system takes, up to a limit; blocked() then, as if it took no more.
  void flush(Handler& handler);
  // A frame other than data, behind the one being sent.
  void queue(const Frame& frame, const std::string& text);
  // Nothing of the operations is sent or received any more: what arrives for them is dropped. The
  // rest of a frame being sent is copied, for the peer may be able to finish with it. Before the
  // operations' memory goes back to their callers.
  void drop_data(Handler& handler);
  // Only what arrives.
  void drop_arrivals() {
    drop_data_ = true;
    target_ = nullptr;
  }
  // All that was to be sent, apart from data, is with the peer's system, or never will be.
  [[nodiscard]] bool delivered() const;

  // Shared memory: what the peer may send by it from now on.
  void share(std::unique_ptr<SharedLink> link) { shared_ = std::move(link); }
  [[nodiscard]] SharedLink* shared() const { return shared_.get(); }
  // Says kShared, behind what is queued. Requires shared().
  void use_shared();
  [[nodiscard]] bool reads_shared() const { return reads_shared_; }
  [[nodiscard]] bool writes_shared() const { return writes_shared_; }
  // There is nothing to read, and nothing that could not be written.
  [[nodiscard]] bool is_quiet() const {
    return reads_shared_ && !blocked_ && !deaf() && (stalled_ || shared_->in().is_empty());
  }
  // The socket has something to read, and it is not frames: bells, or its end.
  void hear_bells(std::span<std::byte> buffer);
  // No bell will follow: the peer has closed the socket.
  [[nodiscard]] bool deaf() const { return !end_.empty(); }
  // Before a thread sleeps: asks the peer for a bell. True: there is something to do already.
  [[nodiscard]] bool prepare_sleep();
  void wake_up();

  // Ends it: by the peer, by an error, or by us. over() says why; empty while it is not.
  void break_off(std::string why);
  [[nodiscard]] const std::string& over() const { return over_; }

  [[nodiscard]] bool blocked() const {
    return blocked_ || std::ranges::any_of(lanes_, &Lane::blocked);
  }
  // The first stream alone.
  [[nodiscard]] bool first_blocked() const { return blocked_; }
  [[nodiscard]] bool stalled() const { return stalled_; }
  [[nodiscard]] std::uint32_t stalled_operation() const { return frame_.operation; }

  // The engine's notes.
  struct Ready {
    Op* op;
    std::uint32_t send;
  };
  std::vector<Ready> ready;        // sends with something to send
  std::uint32_t peer_started = 0;  // the last operation that the peer is known to have started
  std::uint32_t watching = 0;      // events of epoll
  bool dirty = false;              // to be flushed
  bool peer_left = false;
  bool within_host = false;
  std::int64_t core = -1;  // that the peer sent its last data from; below 0: it is not known
  std::optional<Time> hung_up = {};  // its end was noticed while stalled
  Time stalled_at;                   // when stalled: since then, or the peer was told then
  // The answer to what was asked last.
  struct Answer {
    std::uint32_t operation = 0;
    std::uint32_t waits_for = kNoFrameRank;
    std::uint64_t signature = 0;
    std::string text;
  };
  Answer answer;

 private:
  // Returns how many bytes it took: all, unless it stalls or is over, or they are bells.
  std::size_t feed(std::span<const std::byte> bytes, Handler& handler);
  // Takes what is due of the peer's first words, and returns what is behind them.
  [[nodiscard]] std::span<const std::byte> check_answer(std::span<const std::byte> bytes);
  void feed_or_keep(std::span<const std::byte> bytes, Handler& handler);
  bool read_shared(Handler& handler);
  // Sends once, and says how much; nothing: it is blocked or over.
  std::size_t send_pieces(std::span<iovec> pieces);
  void ring_bell() const;
  // The header is complete: who takes the payload.
  void begin_frame(Handler& handler);
  bool prepare(Handler& handler);
  void account(std::size_t sent, Handler& handler);
  // A stalled frame, or one on a lane, is over: what was kept behind its header.
  void feed_kept(Handler& handler);
  // Memory of the operation's for the next bytes; empty: there is none, or too little.
  [[nodiscard]] std::span<std::byte> direct_place() const;
  void placed(std::size_t size, Handler& handler);
  // The first stream, as long as it takes something.
  void flush_first(Handler& handler);

  // Lanes (connection_lanes.cc).
  bool read_lane(std::span<std::byte> buffer, Handler& handler);
  // Sends by the lanes. True: another frame has begun.
  bool flush_lanes(Handler& handler);
  // What the peer must say first on lanes.
  void read_proofs();
  void push(std::size_t lane, Handler& handler);
  // For the next data frame: 0, the first stream, or a lane; none: all have enough.
  [[nodiscard]] std::optional<std::uint32_t> choose_stream(std::size_t bytes);
  [[nodiscard]] static std::string words_for(const Lane& lane);
  // Why it ended, as recv() said.
  [[nodiscard]] static std::string lane_end(const Lane& lane, ssize_t got);

  Rank peer_;
  Fd fd_;
  std::string over_;
  std::unique_ptr<SharedLink> shared_;
  std::string end_;  // why the socket ended; what the ring still holds counts

  // In.
  std::vector<std::byte> answer_due_;  // what is left of it
  std::array<std::byte, kFrameSize> header_ = {};
  std::size_t header_size_ = 0;
  Frame frame_;
  std::size_t left_ = 0;      // of the payload
  Op* target_ = nullptr;      // of a data frame; null: dropped
  std::uint32_t source_ = 0;  // the lane that the payload comes from; 0: the first stream
  std::string text_;
  bool stalled_ = false;
  bool drop_data_ = false;
  bool reads_shared_ = false;
  std::vector<std::byte> kept_;  // behind the header of a frame that is stalled, or on a lane

  // Out.
  std::array<std::byte, kFrameSize> out_header_ = {};
  std::size_t out_header_left_ = 0;
  Outgoing out_;          // what is left of a data frame's payload
  std::string out_text_;  // payload of another frame
  std::size_t out_text_left_ = 0;
  struct Queued {
    Frame frame;
    std::string text;
  };
  std::deque<Queued> queue_;
  bool blocked_ = false;
  bool says_shared_ = false;  // by the frame that is being sent
  bool writes_shared_ = false;
  std::string write_error_;  // nothing more can be sent; the peer's last words may still be read

  std::vector<Lane> lanes_;  // [number - 1]; those without a socket are not there yet
  Loans loans_;              // with lanes
  std::uint32_t last_chosen_ = 0;
};

}  // namespace thalweg
