// Sends tensors between two processes over UDP, exactly or with a bounded loss (DLCP,
// the DLCP paper).
//
//   auto here = Endpoint::create({.listen = "0.0.0.0:7000", .job_token = token});
//   auto peer = here->accept(10s);                        // or here->connect("host:7000", 10s)
//   auto transfer = peer->recv(TensorSpan::of(gradient), {.key = 3, .loss_bound = 0.01});
//   auto report = transfer->wait();                       // report->fraction, report->missing, …
//
// Both ends of a transfer name the same key, size, type and bound. If they differ, the transfer
// fails on both ends with an error that shows both values. A transfer always ends, at its deadline
// at the latest.
//
// Any thread may use any object here. An Endpoint has one thread, which sleeps while there is
// nothing to do. Nothing throws, except what the caller's own functions throw.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/dscp.h>
#include <thalweg/result.h>
#include <thalweg/tensor.h>
#include <thalweg/types.h>

namespace thalweg {

// How switches treat a packet (DLCP, section 3.2.2).
struct PacketTag {
  // The queue, from 0, the most urgent, to 7; EndpointOptions::dscp maps it to a DSCP. Queue 0 is
  // for control messages: switches drop nothing there.
  std::uint8_t priority = 1;
  bool important = true;  // ECN-capable: switches mark it where they drop others
};

struct SendOptions {
  // The same as the receiver's. Transfers with equal keys match in the order of their starts.
  std::uint64_t key = 0;
  // The fraction of the tensor's packets that may be lost, in [0, 1). Above 0 is allowed only for
  // floating-point types. 0: exact.
  double loss_bound = 0;
  PacketTag tag = {};  // of all packets, unless tag_of is set
  // Returns the tag of the packet that carries the elements [first, first + count). send() calls it
  // once per packet.
  std::function<PacketTag(std::int64_t first, std::int64_t count)> tag_of = {};
  // Among the transfers to one peer, the one with the lowest number is sent first, then the oldest
  // (with EndpointOptions::grants: the one with the fewest bytes left).
  std::uint32_t urgency = 0;
  // Elements leave only after Transfer::offer() named them, for tensors that become complete over
  // time.
  bool gradual = false;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

struct RecvOptions {
  std::uint64_t key = 0;
  double loss_bound = 0;
  // The loss to aim for, at most the bound: the receiver waits for more packets as long as waiting
  // costs less than it brings. More than the bound is an error. None: the transfer is done as soon
  // as the bound is kept.
  std::optional<double> loss_target = {};
  // With EndpointOptions::grants: among the transfers from all peers, the one with the lowest
  // number is granted first, then the one that needs the fewest bytes. It should be the sender's
  // urgency.
  std::uint32_t urgency = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  // Called with elements that have arrived since the last call: whole packets, each once, in any
  // order, and all of them before the transfer is over. From the endpoint's thread; it must not
  // block.
  std::function<void(std::span<const ElementRange>)> on_arrival = {};
};

// How a transfer went. A sender's report holds what its receiver told it.
struct TransferReport {
  double fraction = 0;                // fraction of the packets that arrived
  std::int64_t packets = 0;           // of the tensor
  std::int64_t bytes = 0;             // of the tensor
  std::uint64_t retransmissions = 0;  // packets sent again (sender) or asked for again (receiver)
  std::chrono::nanoseconds time = {};
  std::vector<ElementRange> missing =
      {};  // at the receiver: elements that did not arrive, in order
};

// A handle of a transfer in flight. Copies refer to the same transfer; dropping all of them does
// not end it.
class Transfer {
 public:
  // Blocks until the transfer is over.
  [[nodiscard]] Result<TransferReport> wait() const;
  // The same for at most `limit`; then returns an error, and the transfer goes on.
  [[nodiscard]] Result<TransferReport> wait(std::chrono::nanoseconds limit) const;
  [[nodiscard]] bool done() const;
  // These elements of a gradual send are complete and may leave. A packet leaves when all of its
  // elements were offered by one call. Does nothing if the transfer is over: a receiver with a loss
  // bound may have enough before all is offered. Fails if it is not gradual, or has no such
  // elements.
  Status offer(ElementRange elements) const;
  // Ends the transfer with a failure, here and at the peer. It is over, and the tensor is the
  // caller's again, when done() returns true.
  void cancel() const;
  // Calls `then` when the transfer is over: from the endpoint's thread, or from this call if it is
  // already over. Allowed once per transfer. `then` must not block.
  void on_done(std::function<void(const Result<TransferReport>&)> then) const;

  struct State;
  explicit Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// Counts of an endpoint or a peer since its start.
struct NetCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t packets_received = 0;  // placed in a tensor
  std::uint64_t packets_marked = 0;    // marked as congested by a switch
  std::uint64_t packets_unused = 0;    // duplicates, or arrived after their transfer was over
  std::uint64_t packets_bad = 0;       // dropped: not packets of DLCP, or of another job
  std::uint64_t packets_corrupt = 0;   // without a job key: dropped, changed on their way
  // With a job key, packets that were dropped: forged ones have a wrong tag, replayed ones were
  // seen before, stale ones are of an earlier connection or far older than the newest.
  std::uint64_t packets_forged = 0;
  std::uint64_t packets_replayed = 0;
  std::uint64_t packets_stale = 0;
  std::uint64_t messages_bad = 0;
  std::uint64_t grants_sent = 0;      // EndpointOptions::grants
  std::uint64_t grants_received = 0;  // from peers that give grants
  std::uint64_t messages_forged = 0;  // with a job key; one on the TCP stream ends the connection
  std::uint64_t send_errors = 0;      // packets that the kernel refused
  std::uint64_t peers_refused = 0;    // endpoint only: wrong token, key or version, no hello
  std::uint64_t send_calls = 0;       // system calls that sent data
  std::uint64_t receive_calls = 0;    // system calls that received data
};

// A connection to another endpoint. Copies refer to the same connection. It ends with the endpoint,
// by close(), or when the other end is lost. All its transfers then fail.
class Peer {
 public:
  // Reads `tensor`, without a copy, until the transfer is over.
  [[nodiscard]] Result<Transfer> send(TensorView tensor, const SendOptions& options) const;
  // Elements of `tensor` that do not arrive keep their values.
  [[nodiscard]] Result<Transfer> recv(TensorSpan tensor, const RecvOptions& options) const;

  [[nodiscard]] const std::string& name() const;     // "name (address)", as in errors
  [[nodiscard]] std::size_t packet_payload() const;  // the most bytes of a tensor in one packet
  [[nodiscard]] bool connected() const;
  // The peer has sent data again and again, as its signals say, and nothing of it arrives. A path
  // that drops packets of packet_payload() bytes looks like this. Does not block.
  [[nodiscard]] bool data_vanishes() const;
  [[nodiscard]] NetCounters counters() const;
  void close() const;

  struct State;
  explicit Peer(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// How long a receiver waits for packets that are late, once it knows that all were sent, before it
// asks for them again (docs/protocol-dlcp.md, Grace). Each is from 1 µs to an hour.
struct GraceOptions {
  // While little is known about the path.
  std::chrono::nanoseconds initial = std::chrono::milliseconds(1);
  // Added to every wait, for the coarseness of clocks and timers.
  std::chrono::nanoseconds least = std::chrono::microseconds(20);
  // The longest margin; at least the two others.
  std::chrono::nanoseconds most = std::chrono::milliseconds(100);
};

struct EndpointOptions {
  // Where to accept peers: "host:port" or "[::1]:7000"; port 0 is any free port. Empty: the
  // endpoint only connects.
  std::string listen = {};
  // This host's address, without a port, that connect() uses. Empty: the system chooses.
  std::string connect_from = {};
  // A random number that only the processes of the job know. Others are refused.
  std::uint64_t job_token = 0;
  // The secret of the job: 32 hexadecimal digits, the same in all its processes (read_job_key()).
  // With it every packet and message is authenticated, and accepted only once. The data is not
  // encrypted. Empty: no authentication, and peers that have a key are refused. docs/transport.md
  // says what it costs.
  std::string job_key = {};
  // The name of this end in its peers' errors, at most 63 bytes. Empty: the process id.
  std::string name = {};
  // Bytes of a tensor in one packet. 0: as many as the path's MTU allows, at most a jumbo frame.
  std::uint32_t packet_payload = 0;
  // The rate at which sending starts, and the highest it ever reaches. 0: the speed of the
  // interface, or 100 Gb/s if that is unknown. The sender then learns what the path can carry.
  double line_rate_gbps = 0;
  // The number of UDP ports, 1 to 32, from which data to a peer is sent. Networks with several
  // routes of equal cost choose one by a hash of addresses and ports, so each port is a path of its
  // own, and more is sent by those that bring more (docs/protocol-dlcp.md). The smaller number of
  // both ends holds. 0: 16 if a router is on the way to the peer, or 1 for every 256 descriptors
  // that the process may have if that is fewer; otherwise 1.
  std::uint32_t paths = 0;
  // Buffers of each UDP socket. Where the system does not allow so much without root, the endpoint
  // takes what is allowed and warns.
  std::size_t receive_buffer_bytes = std::size_t{32} << 20;
  std::size_t send_buffer_bytes = std::size_t{4} << 20;
  // A peer whose system does not answer for this long is lost. When a peer's process ends, its end
  // is noticed at once.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(10);
  GraceOptions grace = {};
  // Receiver grants, beyond the DLCP paper: this end tells its peers how much of each transfer may
  // leave, over all of them together, so that many senders at once do not lose most of what they
  // send (docs/protocol-dlcp.md, Receiver grants). A transfer takes a round trip longer. Peers need
  // not set it. It needs the rate of this host's link: line_rate_gbps, or a numeric address in
  // `listen` or `connect_from` of an interface that reports its speed. Several endpoints of a host
  // grant without knowing of each other.
  bool grants = false;
  // For grants: the round trip to the farthest peer while the network is idle, up to 10 s. 0: the
  // shortest that TCP measured on the streams of signals.
  std::chrono::nanoseconds grants_round_trip = {};
  // The DSCP of each queue. Switches must be configured for other values than the defaults
  // (docs/operating.md).
  DscpTable dscp = kDefaultDscp;
  // Without a job key, packets of data that this end sends carry a checksum
  // (docs/protocol-dlcp.md). docs/transport.md says what it costs.
  bool checksum = true;
  // Use segmentation by the kernel or the network card, where there is any.
  bool offload = true;
  // Called with each warning. None: warnings go to standard error.
  std::function<void(const std::string&)> warn = {};
  // A folder in which each connection is recorded to a file, "NAME-0.dlcp" and so on, for `thalweg
  // trace replay` (docs/recording.md). Endpoints that share a folder need different names. The
  // files hold no tensors, token or key. Empty: nothing is recorded.
  std::string record_folder = {};
};

// Reads the job key from the first line of a file, which keeps it out of command lines and the
// environment. `openssl rand -hex 16` makes one.
[[nodiscard]] Result<std::string> read_job_key(const std::string& path);

class Endpoint {
 public:
  [[nodiscard]] static Result<Endpoint> create(const EndpointOptions& options);
  // Ends all transfers and connections, and tells the peers.
  ~Endpoint();
  Endpoint(Endpoint&&) noexcept;
  Endpoint& operator=(Endpoint&&) noexcept;

  // The address at which it listens, with the port that was chosen. Empty: it does not listen.
  [[nodiscard]] const std::string& address() const;
  // Tries for at most `limit`, so either process may start first. If the peer refuses this process,
  // it returns an error at once.
  [[nodiscard]] Result<Peer> connect(const std::string& address,
                                     std::chrono::nanoseconds limit) const;
  // Returns the next peer that connected.
  [[nodiscard]] Result<Peer> accept(std::chrono::nanoseconds limit) const;
  [[nodiscard]] NetCounters counters() const;

  class Core;

 private:
  explicit Endpoint(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
