// Tensors between two processes over UDP, exact or with a bounded loss (DLCP, papers/dlcp.txt).
//
//   auto here = Endpoint::create({.listen = "0.0.0.0:7000", .job_token = token});
//   auto peer = here->accept(10s);                        // or here->connect("host:7000", 10s)
//   auto transfer = peer->recv(TensorSpan::of(gradient), {.key = 3, .loss_bound = 0.01});
//   auto report = transfer->wait();                       // report->fraction, report->missing, …
//
// Both ends of a transfer name the same key, size, type and bound; otherwise it fails on both, and
// says the values of both. A transfer always ends, at its deadline at the latest.
//
// Every object here may be used from any thread. An Endpoint has one thread of its own, which
// sleeps while there is nothing to do. Nothing throws, except what your own functions throw.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/dscp.h>
#include <thalweg/result.h>
#include <thalweg/tensor.h>
#include <thalweg/types.h>

namespace thalweg {

// What switches may do with a packet (DLCP, section 3.2.2).
struct PacketTag {
  // Queue, 0 first, at most 7; its DSCP is EndpointOptions::dscp. Queue 0 is for control messages:
  // switches drop nothing there.
  std::uint8_t priority = 1;
  bool important = true;  // ECN-capable: marked as congested where others are dropped
};

struct SendOptions {
  std::uint64_t key = 0;  // matches the receiver's; equal keys match in order of starting
  // The part of the tensor's packets that may be lost, in [0, 1); above 0 only for floating-point
  // types. 0: exact.
  double loss_bound = 0;
  PacketTag tag = {};  // of all packets, unless:
  // The tag of each packet, by the elements [first, first + count) that it carries. Called by
  // send(), once a packet.
  std::function<PacketTag(std::int64_t first, std::int64_t count)> tag_of = {};
  // Among the transfers to one peer the lowest is sent first, then the oldest.
  std::uint32_t urgency = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

struct RecvOptions {
  std::uint64_t key = 0;
  double loss_bound = 0;
  // The loss to wait for, at most the bound, as long as waiting costs less than it brings. None:
  // done as soon as the bound is kept.
  std::optional<double> loss_target = {};
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// How a transfer went. A sender knows what its receiver told it.
struct TransferReport {
  double fraction = 0;                // of the packets, that arrived
  std::int64_t packets = 0;           // of the tensor
  std::int64_t bytes = 0;             // of the tensor
  std::uint64_t retransmissions = 0;  // packets sent again (sender) or asked for again (receiver)
  std::chrono::nanoseconds time = {};
  std::vector<ElementRange> missing =
      {};  // at the receiver: elements that did not arrive, in order
};

// A transfer in flight. Copies speak of the same one; dropping them all does not end it.
class Transfer {
 public:
  // Blocks until it is over.
  [[nodiscard]] Result<TransferReport> wait() const;
  // The same for so long at most; then an error, and the transfer goes on.
  [[nodiscard]] Result<TransferReport> wait(std::chrono::nanoseconds limit) const;
  [[nodiscard]] bool done() const;
  // Ends it with a failure, here and at the peer. It is over, and the tensor is the caller's
  // again, when done() says so.
  void cancel() const;
  // Calls `then` when it is over: from the endpoint's thread, or from here if it is over already.
  // One call a transfer; it must not block.
  void on_done(std::function<void(const Result<TransferReport>&)> then) const;

  struct State;
  explicit Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// What an endpoint or a peer has seen. All counts are since its start.
struct NetCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t packets_received = 0;  // those placed in a tensor
  std::uint64_t packets_marked = 0;    // as congested, by a switch
  std::uint64_t packets_unused = 0;    // arrived twice, or after their transfer was over
  std::uint64_t packets_bad = 0;       // no packets of ours, or not of this job: dropped
  // With a job key, dropped: the tag is wrong; seen before; of an earlier connection, or far older
  // than the newest.
  std::uint64_t packets_forged = 0;
  std::uint64_t packets_replayed = 0;
  std::uint64_t packets_stale = 0;
  std::uint64_t messages_bad = 0;
  std::uint64_t messages_forged = 0;  // with a job key; one on the stream ends the connection
  std::uint64_t send_errors = 0;      // packets that the kernel would not take
  std::uint64_t peers_refused = 0;    // endpoint only: wrong token, key or version, no hello
  std::uint64_t send_calls = 0;       // system calls that sent data
  std::uint64_t receive_calls = 0;    // and received it
};

// A connection to another endpoint. Copies speak of the same one. It ends when the endpoint does,
// by close(), or when the other end is lost, and then all its transfers fail.
class Peer {
 public:
  // `tensor` is read, without a copy, until the transfer is over.
  [[nodiscard]] Result<Transfer> send(TensorView tensor, const SendOptions& options) const;
  // Afterwards what did not arrive is as it was before.
  [[nodiscard]] Result<Transfer> recv(TensorSpan tensor, const RecvOptions& options) const;

  [[nodiscard]] const std::string& name() const;     // "name (address)", as in errors
  [[nodiscard]] std::size_t packet_payload() const;  // bytes of a tensor in one packet, at most
  [[nodiscard]] bool connected() const;
  [[nodiscard]] NetCounters counters() const;
  void close() const;

  struct State;
  explicit Peer(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct EndpointOptions {
  // Where to accept peers: "host:port", "[::1]:7000", port 0 for any. Empty: only connect().
  std::string listen = {};
  // The address of this host, without a port, that connect() uses. Empty: the system's choice.
  std::string connect_from = {};
  // The random number that all processes of a job hold and nobody else; others are refused.
  std::uint64_t job_token = 0;
  // The secret of the job: 32 hexadecimal digits, the same at all its processes (read_job_key()).
  // Every packet and message is then authenticated, and only once accepted; the data itself is
  // not hidden. Empty: no such protection, and no peers that have a key. docs/transport.md says
  // what it costs.
  std::string job_key = {};
  // How peers call this end in their errors. Empty: the process id. At most 63 bytes.
  std::string name = {};
  // Bytes of a tensor in one packet. 0: what the path's MTU allows, at most a jumbo frame.
  std::uint32_t packet_payload = 0;
  // Where sending starts, and the most it ever is. 0: the speed of the interface, or 100 Gb/s
  // where that is unknown; the sender then learns what the path takes.
  double line_rate_gbps = 0;
  // Of each UDP socket. More than the system allows without root: as much as it allows, and a
  // warning.
  std::size_t receive_buffer_bytes = std::size_t{32} << 20;
  std::size_t send_buffer_bytes = std::size_t{4} << 20;
  // A peer whose system does not answer for so long is lost. A peer whose process ends is noticed
  // at once.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(10);
  // DSCP of each queue. Switches must be told of others than these (docs/operating.md).
  DscpTable dscp = kDefaultDscp;
  // Segmentation by the kernel or the card, where they have it.
  bool offload = true;
  // Where warnings go. None: to standard error.
  std::function<void(const std::string&)> warn = {};
  // Where each connection is recorded, in a file of its own, for `thalweg trace replay`
  // (docs/recording.md): "NAME-0.dlcp" and so on, so endpoints that share a folder need names of
  // their own. Neither tensors nor the token nor the key are in it. Empty: nothing is recorded.
  std::string record_folder = {};
  // For tests: true loses the data packet with this sequence number instead of sending it. Called
  // by the endpoint's thread.
  std::function<bool(std::uint64_t sequence)> lose = {};
};

// The job key in the first line of a file, which keeps it off command lines and out of the
// environment. `openssl rand -hex 16` makes one.
[[nodiscard]] Result<std::string> read_job_key(const std::string& path);

class Endpoint {
 public:
  [[nodiscard]] static Result<Endpoint> create(const EndpointOptions& options);
  // Ends all transfers and connections, and tells the peers.
  ~Endpoint();
  Endpoint(Endpoint&&) noexcept;
  Endpoint& operator=(Endpoint&&) noexcept;

  // Where it listens, with the port that was chosen; empty if it does not.
  [[nodiscard]] const std::string& address() const;
  // Tries until the limit, so either process may start first. A peer that refuses us is an error
  // at once.
  [[nodiscard]] Result<Peer> connect(const std::string& address,
                                     std::chrono::nanoseconds limit) const;
  // The next peer that connected.
  [[nodiscard]] Result<Peer> accept(std::chrono::nanoseconds limit) const;
  [[nodiscard]] NetCounters counters() const;

  class Core;

 private:
  explicit Endpoint(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
