// The contract between a transport (NewReno, CUBIC, DCTCP, PIAS, pFabric, …) and the simulator.
//
// A sender and a receiver are sans-I/O objects of one flow: they are told what arrived and what
// time it is, and say what to send and when to wake them. They own no clock and no queue. After any
// call to a sender, call poll_transmit() until it returns false, and look at next_timeout() again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/packet.h"

namespace thalweg::sim {

// A segment to send. The simulator adds flow, source, target, headers and time.
struct SegmentToSend {
  std::uint64_t sequence = 0;
  std::uint32_t payload = 0;
  std::uint32_t rank_in_queue = 0;
  std::uint8_t priority = 0;
  Ecn ecn = Ecn::kNotCapable;
  bool retransmission = false;
};

// Stretches of a flow that have arrived beyond the next byte expected (RFC 2018). An
// acknowledgement has room for three beside its time, as those of Linux have.
struct SackBlock {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const SackBlock&) const = default;
};
struct SackBlocks {
  static constexpr std::uint32_t kMost = 3;

  std::uint32_t count = 0;
  std::array<SackBlock, kMost> blocks;

  // Bytes of the option in a header, padded to a multiple of four.
  [[nodiscard]] std::uint32_t wire_size() const { return count == 0 ? 0 : 4 + 8 * count; }
};

// What a sender learns from an acknowledgement.
struct Acknowledgement {
  std::uint64_t next_expected = 0;  // all bytes below have arrived
  Time answered_sent;               // when the packet it answers was sent
  bool answered_retransmission = false;
  bool echo = false;                 // that packet was marked congested
  const SackBlocks* sack = nullptr;  // null: the receiver does not acknowledge selectively
};

struct SenderCounters {
  std::uint64_t segments = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t marks_echoed = 0;
};

class Sender {
 public:
  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  virtual ~Sender() = default;

  virtual void start(Time now) = 0;
  virtual void on_ack(Time now, const Acknowledgement& ack) = 0;
  // Called when the time of next_timeout() has come.
  virtual void on_timeout(Time now) = 0;
  // Returns false if there is nothing to send now.
  virtual bool poll_transmit(Time now, SegmentToSend& out) = 0;
  [[nodiscard]] virtual std::optional<Time> next_timeout() const = 0;
  // Whether every byte has been acknowledged, and none will follow.
  [[nodiscard]] virtual bool done() const = 0;
  [[nodiscard]] virtual const SenderCounters& counters() const = 0;
  // Congestion window in bytes, for traces and for warm starts.
  [[nodiscard]] virtual double window() const = 0;
};

// The sender of a stream: bytes are appended to it, and it is never done.
class StreamSender : public Sender {
 public:
  virtual void extend(std::uint64_t bytes) = 0;
  // How many bytes were appended and never sent.
  [[nodiscard]] virtual std::uint64_t unsent() const = 0;
};

// Acknowledges every data packet at once, with the next byte expected in order and, if it is asked,
// with stretches beyond.
class Receiver {
 public:
  explicit Receiver(std::uint64_t flow_bytes) : flow_bytes_(flow_bytes) {}

  // So many more bytes will come.
  void extend(std::uint64_t bytes) { flow_bytes_ += bytes; }
  // Takes payload [sequence, sequence + payload); returns the next byte expected.
  std::uint64_t on_data(std::uint64_t sequence, std::uint32_t payload);
  // What to acknowledge selectively in answer to this payload, which on_data() took just before:
  // the stretch that holds it, then those reported last. For receivers that are asked every time.
  const SackBlocks& sack(std::uint64_t sequence, std::uint32_t payload);
  [[nodiscard]] bool complete() const { return expected_ == flow_bytes_; }
  // Payload bytes that have arrived, in order or not.
  [[nodiscard]] std::uint64_t received_bytes() const {
    std::uint64_t bytes = expected_;
    for (const Stretch& stretch : early_) bytes += stretch.end - stretch.begin;
    return bytes;
  }
  // Payload bytes that arrived more than once.
  [[nodiscard]] std::uint64_t duplicate_bytes() const { return duplicate_bytes_; }

 private:
  std::uint64_t flow_bytes_;
  std::uint64_t expected_ = 0;
  std::uint64_t duplicate_bytes_ = 0;
  // Stretches above expected_ that have arrived, sorted, disjoint, not touching.
  struct Stretch {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  std::vector<Stretch> early_;
  SackBlocks reported_;  // stretches of early_, the last one reported first
};

struct DlcpParameters;
struct AggregationParameters;

// A transport's parameters, and how to make its senders. A scenario has one per kind of traffic.
class TransportFactory {
 public:
  TransportFactory() = default;
  TransportFactory(const TransportFactory&) = delete;
  TransportFactory& operator=(const TransportFactory&) = delete;
  virtual ~TransportFactory() = default;

  // `window`: bytes to start with instead of the initial window, for a connection that is kept from
  // flow to flow.
  [[nodiscard]] virtual std::unique_ptr<Sender> make_sender(std::uint64_t flow_bytes,
                                                            std::optional<double> window) const = 0;
  // Null: the transport has no streams, since it decides by the sizes of flows.
  [[nodiscard]] virtual std::unique_ptr<StreamSender> make_stream() const { return nullptr; }
  // The bytes of a piece, if messages can be sent piece by piece (FlowSpec::watcher): what a full
  // packet carries. 0: they cannot.
  [[nodiscard]] virtual std::uint64_t piece_bytes() const { return 0; }
  // The number of pieces of a message; the last may be shorter. Requires that there are pieces.
  [[nodiscard]] std::uint32_t pieces_of(std::uint64_t bytes) const {
    return static_cast<std::uint32_t>((bytes + piece_bytes() - 1) / piece_bytes());
  }
  [[nodiscard]] virtual std::uint32_t header_bytes() const = 0;  // of every packet, acks included
  [[nodiscard]] virtual std::uint8_t ack_priority() const { return 0; }
  // Whether receivers acknowledge selectively.
  [[nodiscard]] virtual bool selective() const { return false; }
  // Not null: flows are transfers of DLCP (sim/dlcp), and make_sender() is not called.
  [[nodiscard]] virtual const DlcpParameters* dlcp() const { return nullptr; }
  // Not null: jobs are aggregated in switches (sim/atp), and make_sender() is not called.
  [[nodiscard]] virtual const AggregationParameters* aggregation() const { return nullptr; }
  // The text to print in a result: "dctcp: IW 10, K 65, …".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace thalweg::sim
