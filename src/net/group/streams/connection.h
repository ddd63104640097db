// The connection to one other rank: frames in and out. It does not know what frames mean; its
// Handler does.
//
// Reading: data goes straight to where the executor wants it, or through a small buffer. A data
// frame that no operation can take yet stalls the connection until resume(). Writing: whole frames,
// one after the other; the payload of a data frame is sent from the tensor itself. Neither blocks.
//
// On sockets frames may have checksums, or be sealed: encrypted and authenticated
// (stream_checks.h). The executor gets a payload when all of it is here and is as it was sent
// (connection_checked.cc). If it is not, the connection is spoiled: nothing of what follows is
// believed, but frames can still be sent, so that the peer learns why. What is sealed is sent from
// a buffer of its stream, one frame long, and not from the tensor.
//
// Two ranks of one host may share memory (shared_rings.h). Each then sends kShared once, and all
// frames after that one go through its ring. The socket then carries only bells, which wake a peer
// that sleeps, and the end of the connection. Until both ranks have sent kShared, one direction may
// use the socket and the other the ring.
//
// Two ranks with several interfaces, or several paths between them, also have lanes
// (connection_lanes.cc): streams that carry the payloads of large data frames and nothing else. The
// frame's header, on the first stream, says which lane brings its payload (kLaneData). So frames
// begin and are read in one order, as without lanes, and what other lanes bring meanwhile waits in
// the system's buffers. The lane with the fewest unsent bytes gets the next payload, so a slow lane
// gets fewer. When the path of a stream dies, the stream moves to another one
// (connection_moves.cc).
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

#include "base/units.h"
#include "net/group/operation/stream_operation.h"
#include "net/group/shm/shared_rings.h"
#include "net/group/streams/lanes.h"
#include "net/io/fd.h"
#include "wire/authenticate.h"
#include "wire/frame.h"
#include "wire/sealed_frame.h"

namespace thalweg::net {

class Connection {
 public:
  // The bytes of a data frame to be sent, and the send that they are part of.
  struct Outgoing {
    Streamed* op = nullptr;
    std::uint32_t send = 0;
    std::span<const std::byte> bytes;
  };
  class Handler {
   public:
    virtual ~Handler() = default;
    // The header of a data frame arrived. Returns the operation that takes its payload, or null to
    // stall the connection. If the frame makes no sense, it calls break_off() and returns null.
    virtual Streamed* on_data(Connection& connection, const wire::Frame& frame) = 0;
    // Any other frame arrived, with its payload.
    virtual void on_frame(Connection& connection, const wire::Frame& frame,
                          const std::string& text) = 0;
    // The operation has received or sent some bytes.
    virtual void on_progress(Streamed& op) = 0;
    // Bytes changed on their way from the peer: spoiled() says which.
    virtual void on_spoiled(Connection& connection) = 0;
    // Provides the next data frame to send, of longest_frame() bytes at most. False: there is none
    // now.
    virtual bool next_data(Connection& connection, wire::Frame& frame, Outgoing& out) = 0;
  };

  explicit Connection(Rank peer) : peer_(peer) {}

  [[nodiscard]] Rank peer() const { return peer_; }
  [[nodiscard]] bool connected() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Takes a connected, non-blocking socket.
  void attach(Fd fd);
  // Call before anything is read or sent. How frames on the socket are checked, as the hello said.
  // `seal`: set if the frames are sealed.
  void set_check(wire::FrameCheck check, std::unique_ptr<wire::StreamSeal> seal = {});
  [[nodiscard]] bool sealed() const { return seal_ != nullptr; }
  // Both ends are on this host.
  [[nodiscard]] bool within_host() const { return within_host_; }
  // Call before anything is read. The peer must send this proof before its frames, or the
  // connection is broken off.
  void expect(const wire::SessionProof& proof) {
    answer_due_.assign(proof.begin(), proof.end());
    bytes_.expect_uncounted(proof.size());
  }

  // Adds a lane; numbers start at 1. `due`: what the peer must send first on it. False: that lane
  // exists already, or the connection is over or shares memory.
  bool add_lane(std::uint32_t number, Fd fd, std::vector<std::byte> due);
  [[nodiscard]] const std::vector<Lane>& lanes() const { return lanes_; }
  [[nodiscard]] bool has_lanes() const { return !lanes_.empty(); }
  [[nodiscard]] bool owns(int fd) const {
    return connected() && (fd_.get() == fd || std::ranges::any_of(lanes_, [fd](const Lane& lane) {
                             return lane.fd.get() == fd;
                           }));
  }
  // The lane that the next bytes come from; 0: the first stream.
  [[nodiscard]] std::uint32_t source() const { return source_; }
  // The next bytes come from a lane that this side does not have yet.
  [[nodiscard]] bool misses_lane() const {
    return source_ > lanes_.size() || (source_ > 0 && !lanes_[source_ - 1].fd.valid());
  }

  // Moving streams to other TCP connections (connection_moves.cc). Stream 0 is the first, the
  // others are lanes.
  // Call before attach(), if there will be lanes: the first stream can move, too. Lanes always can.
  void keep_copies() { bytes_.keep_copies(); }
  // Whether there is such a stream, and it can move.
  [[nodiscard]] bool can_move(std::uint32_t stream) const;
  [[nodiscard]] int fd_of(std::uint32_t stream) const {
    return stream == 0 ? fd_.get() : lanes_[stream - 1].fd.get();
  }
  [[nodiscard]] StreamBytes& bytes_of(std::uint32_t stream) {
    return stream == 0 ? bytes_ : lanes_[stream - 1].bytes;
  }
  // Reads all that the stream's connection has brought. Returns the bytes received so far.
  std::uint64_t drain(std::uint32_t stream);
  // The stream goes on by `fd`, of whose bytes the peer has `theirs`. Returns the old socket. If
  // the peer cannot have so many, the connection is over.
  Fd move(std::uint32_t stream, Fd fd, std::uint64_t theirs);
  // What connects this host and the peer by the stream, in words.
  [[nodiscard]] std::string words_for(std::uint32_t stream) const;
  // There are bytes to read that no socket will announce, because drain() has read them.
  [[nodiscard]] bool has_early() const;

  // Bytes of the send that a stream was given, and that the executor was not told were sent.
  [[nodiscard]] std::size_t lent(const Streamed* op, std::uint32_t send) const {
    return loans_.of(op, send);
  }

  // The most payload bytes of the next data frame, of a transfer of `transfer` bytes that the peer
  // may send on while it arrives. An operation that is more urgent waits for no more than this.
  [[nodiscard]] std::size_t longest_frame(std::size_t transfer) const;

  // Reads once, into the memory of an operation or into `buffer`. False: there was nothing to read,
  // or the connection is stalled or over.
  bool read(std::span<std::byte> buffer, Handler& handler);
  // Asks the handler again for the operation that takes a stalled frame.
  void resume(Handler& handler);
  // Sends as much as the system takes, up to a limit. If more is left, blocked() is then true.
  void flush(Handler& handler);
  // Queues a frame other than data. It is sent before further data frames.
  void queue(const wire::Frame& frame, const std::string& text);
  // Stops sending and receiving the operations' data; data that arrives is dropped. Call before the
  // operations' memory goes back to the callers. The rest of a data frame that is being sent is
  // copied and sent, because the peer may be able to finish an operation with it.
  void drop_data(Handler& handler);
  // Drops data that arrives, and still sends.
  void drop_arrivals() {
    drop_data_ = true;
    target_ = nullptr;
  }
  // True when all frames other than data are with the peer's system, or can never get there.
  [[nodiscard]] bool delivered() const;

  // Sets the shared memory. From now on the peer may send kShared and then use it.
  void share(std::unique_ptr<SharedRings> rings) { shared_ = std::move(rings); }
  [[nodiscard]] SharedRings* shared() const { return shared_.get(); }
  // Sends kShared, after what is queued. Requires shared().
  void use_shared();
  [[nodiscard]] bool reads_shared() const { return reads_shared_; }
  [[nodiscard]] bool writes_shared() const { return writes_shared_; }
  // True when the ring has nothing to read and no write waits for room. Only ever true for a
  // connection that reads from shared memory.
  [[nodiscard]] bool is_quiet() const {
    return reads_shared_ && !blocked_ && !deaf() && (stalled_ || shared_->in().is_empty());
  }
  // Call when the socket can be read but carries no frames: reads bells, and notices the socket's
  // end.
  void hear_bells(std::span<std::byte> buffer);
  // The peer has closed the socket, so no bell will follow.
  [[nodiscard]] bool deaf() const { return !end_.empty(); }
  // Call before a thread sleeps: asks the peer for a bell. True: there is something to do already.
  [[nodiscard]] bool prepare_sleep();
  void wake_up();

  // Ends the connection. over() says why it ended; empty: it has not.
  void break_off(std::string why);
  [[nodiscard]] const std::string& over() const { return over_; }
  // What changed on its way from the peer; empty: nothing did.
  [[nodiscard]] const std::string& spoiled() const { return spoiled_; }

  [[nodiscard]] bool blocked() const {
    return blocked_ || std::ranges::any_of(lanes_, &Lane::blocked);
  }
  // Whether the first stream, without lanes, is blocked.
  [[nodiscard]] bool first_blocked() const { return blocked_; }
  [[nodiscard]] bool stalled() const { return stalled_; }
  // Bytes of the payload that is being read which have not arrived.
  [[nodiscard]] std::size_t rest_of_payload() const { return left_; }

 private:
  // Takes bytes of frames. Returns how many it took: all, unless the connection stalls or ends, or
  // what follows comes from a ring or a lane.
  std::size_t feed(std::span<const std::byte> bytes, Handler& handler);
  // Checks the part of `bytes` that must be the peer's proof, and returns the rest.
  [[nodiscard]] std::span<const std::byte> check_answer(std::span<const std::byte> bytes);
  void feed_or_keep(std::span<const std::byte> bytes, Handler& handler);
  bool read_shared(Handler& handler);
  // Sends once and returns how much. 0: the connection is blocked or over.
  std::size_t send_pieces(std::span<iovec> pieces);
  void ring_bell() const;
  // The header is complete: finds out where the payload comes from and which operation takes it.
  void begin_frame(Handler& handler);
  bool prepare(Handler& handler);
  void account(std::size_t sent, Handler& handler);
  // Takes the bytes that were kept because a frame before them was stalled or on a lane.
  void feed_kept(Handler& handler);
  // The operation's memory for the next bytes. Empty: there is none, or too little to be worth it.
  [[nodiscard]] std::span<std::byte> direct_place();
  void placed(std::size_t size, Handler& handler);
  // Bytes of a data frame's payload that were read into a buffer.
  void take_data(std::span<const std::byte> bytes, Handler& handler);
  void take_text(std::span<const std::byte> bytes, Handler& handler);

  // Checksums and seals (connection_checked.cc).
  [[nodiscard]] bool checks_in() const {
    return check_ != wire::FrameCheck::kNone && !reads_shared_;
  }
  [[nodiscard]] bool checks_out() const {
    return check_ != wire::FrameCheck::kNone && !writes_shared_;
  }
  [[nodiscard]] bool seals_in() const { return sealed() && !reads_shared_; }
  [[nodiscard]] bool seals_out() const { return sealed() && !writes_shared_; }
  [[nodiscard]] std::size_t header_size_in() const {
    if (seals_in()) return wire::kSealedFrameSize;
    return checks_in() ? wire::kCheckedFrameSize : wire::kFrameSize;
  }
  // What a header must say of its payload: the checksum, or the ticket by which it was sealed.
  struct Proof {
    std::uint32_t checksum = 0;
    wire::FrameSealer::Ticket ticket = {};
  };
  // The place of a frame in the order of those that are sent.
  [[nodiscard]] Proof next_proof();
  // Proves the payload. If frames are sealed, `out` becomes what is sent instead of it.
  void prove_payload(Proof& proof, std::span<const std::byte> payload, std::span<std::byte> out);
  // The same for a payload of data that a stream sends from `sealed`.
  void prove_data(Proof& proof, std::span<const std::byte> payload, std::vector<std::byte>& sealed);
  // Writes the header of the next frame to send.
  void put_header(const wire::Frame& frame, Proof proof);
  // The unsent rest of a data frame's payload, as the stream carries it.
  [[nodiscard]] std::span<const std::byte> unsent_data() const {
    return out_is_sealed_ ? std::span(sealed_out_).last(out_.bytes.size()) : out_.bytes;
  }
  [[nodiscard]] wire::WireError decode_header();
  // All of the payload is in hold(): the operation takes it, if it is right.
  void end_held(Handler& handler);
  // Where the rest of the payload is kept until it is checked: in the operation's memory, or in
  // held_.
  [[nodiscard]] std::span<std::byte> hold();
  // The next bytes of the payload are in hold().
  void held(std::size_t size, Handler& handler);
  void take_checked(std::span<const std::byte> bytes, Handler& handler);
  void spoil(std::string what, Handler& handler);
  // Reads on a spoiled connection: only its end matters.
  bool discard(std::span<std::byte> buffer);
  // Sends by the first stream as much as it takes.
  void flush_first(Handler& handler);

  // Lanes (connection_lanes.cc).
  // Sets the first stream's options when there are lanes.
  void prepare_first();
  bool read_lane(std::span<std::byte> buffer, Handler& handler);
  // Sends by the lanes. True: it has begun another frame.
  bool flush_lanes(Handler& handler);
  // Reads and checks the proofs that the peer must send first on lanes.
  void read_proofs();
  void push(std::size_t lane, Handler& handler);
  // The stream for the next data frame: 0, the first stream, or a lane. None: all have enough
  // unsent.
  [[nodiscard]] std::optional<std::uint32_t> choose_stream(std::size_t bytes);
  // Why the lane ended, according to what recv() returned.
  [[nodiscard]] std::string lane_end(std::uint32_t number, ssize_t got) const;
  // Notes that the lane takes nothing more, as errno says.
  void lose_lane(std::uint32_t number);
  // Handles errno of a stream, if it says that the path is broken: the stream waits to be moved,
  // and the connection is over when all do. False: it says something else.
  bool lose_path(std::uint32_t stream);
  // Keeps a copy of the first `sent` bytes of the pieces, if the first stream can move.
  void note_sent(std::span<const iovec> pieces, std::size_t sent);
  // Sends what a move left to be sent, by the first stream. False: it may send nothing else now.
  bool repeat_first();

  Rank peer_;
  Fd fd_;
  bool within_host_ = false;
  StreamBytes bytes_;  // of the first stream
  wire::FrameCheck check_ = wire::FrameCheck::kNone;
  std::unique_ptr<wire::StreamSeal> seal_;  // set if check_ is kSealed
  std::string over_;
  std::string spoiled_;
  std::unique_ptr<SharedRings> shared_;
  std::string end_;  // why the socket ended; the ring may still hold frames

  // In.
  std::vector<std::byte> answer_due_;  // the rest of the proof that the peer must send
  std::array<std::byte, wire::kSealedFrameSize> header_ = {};
  std::size_t header_size_ = 0;
  wire::Frame frame_;
  std::size_t left_ = 0;        // bytes of the payload not received yet
  Streamed* target_ = nullptr;  // takes the data frame; null: the data is dropped
  std::uint32_t source_ = 0;    // the lane that the payload comes from; 0: the first stream
  std::string text_;
  std::uint32_t due_ = 0;        // the checksum that the payload must have
  wire::Crc32c sum_;             // of its bytes so far
  std::span<std::byte> hold_;    // where all of it is kept; empty: not decided yet
  bool in_place_ = false;        // hold_ is memory of the operation
  std::vector<std::byte> held_;  // the memory of hold_ otherwise
  bool stalled_ = false;
  bool drop_data_ = false;
  bool reads_shared_ = false;
  std::vector<std::byte> kept_;  // bytes after the header of a stalled frame or of one on a lane

  // Out.
  std::array<std::byte, wire::kSealedFrameSize> out_header_ = {};
  std::size_t out_header_size_ = 0;
  std::size_t out_header_left_ = 0;
  Outgoing out_;                       // unsent rest of a data frame's payload
  std::vector<std::byte> sealed_out_;  // ends with the same rest, sealed
  bool out_is_sealed_ = false;
  std::string out_text_;  // payload of another frame
  std::size_t out_text_left_ = 0;
  struct Queued {
    wire::Frame frame;
    std::string text;
    Proof proof = {};  // of kLaneData, complete; otherwise only its place
  };
  std::deque<Queued> queue_;
  bool blocked_ = false;
  bool says_shared_ = false;  // the frame that is being sent is kShared
  bool writes_shared_ = false;
  std::string write_error_;  // nothing more can be sent; what the peer sent last may still be read

  std::vector<Lane> lanes_;  // [number - 1]; a lane without a socket does not exist yet
  Loans loans_;              // used with lanes
  int backlog_ = 0;          // lane_backlog() of the first stream
  std::uint32_t last_chosen_ = 0;
};

// What to tell the user on the rank that found it.
[[nodiscard]] std::string words_of_spoiled(const Connection& connection, int own_rank);

}  // namespace thalweg::net
