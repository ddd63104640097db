// DLCP as a transport of scenarios: its parameters, and the factory that carries them. The protocol
// itself is the endpoint of proto/dlcp; DlcpHosts drives it.
#pragma once

#include <string>
#include <utility>

#include "proto/dlcp/grants.h"
#include "proto/dlcp/options.h"
#include "sim/tcp/parameter_binder.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim {

// The key of each parameter in scenario files is in parentheses.
struct DlcpParameters {
  double bound = 0.1;  // share of a flow's segments that may be missing at its end (bound)
  // The same share for what servers send back, where a segment stands for many workers; unset: half
  // of `bound` (pull_bound).
  std::optional<double> pull_bound;
  // Payload of a full packet. With IP, UDP and our own header a packet has 1500 bytes (segment,
  // header).
  Bytes segment{1436};
  Bytes header{64};
  // Share of the segments that are ECN-capable: those above the tensor's median magnitude
  // (important).
  double important = 0.5;
  // The rate at which every flow starts, and its highest; 0: the rate of its host's link (rate).
  Bandwidth rate;
  // Whether the receiver tells the sender that its memory is ready before the tensor is, as it can
  // because jobs send the same tensors in every iteration. Off: every flow waits half a round trip
  // for that (in_advance).
  bool in_advance = true;
  // Size of the TCP and IP headers of a control message, and of its acknowledgement
  // (control_header).
  Bytes control_header{40};
  // How long a control message waits for its acknowledgement before it is sent again; doubles up to
  // 100 times this (control_rto).
  Duration control_rto = Duration::milliseconds(1);
  // Bytes of data that may wait at a host's port where the network sets no host_queue (host_queue).
  Bytes host_queue{12'000};
  std::uint32_t burst = 1;  // packets sent back to back (burst)
  proto::RateControlOptions rate_control;
  proto::GraceOptions grace;
  proto::PathOptions paths;  // used where `balancing` is label
  // Beyond the paper: receivers grant what senders may send (grants; overcommit, parallel, quantum,
  // first, round_trip), and senders that wait ask (want_after).
  bool grants = false;
  proto::GrantOptions granting = {};
  proto::WantOptions want = {.after = Duration::microseconds(500)};
  // Which transfer goes first, over all peers of a host, at senders and among grants. With kOldest
  // the senders of a host take turns, as in the paper (order, ageing).
  enum class Order : std::uint8_t { kOldest, kUrgent, kShortest };
  Order order = Order::kOldest;
  double ageing = 0.01;
  // Where order is not kOldest: bytes of data that a host's port takes ahead. What waits longer
  // than this waits where it can be overtaken (ahead).
  Bytes ahead{12'000};

  // Returns the options of an endpoint at a host with this rate.
  [[nodiscard]] proto::DlcpOptions options(const std::string& peer, Bandwidth host_rate,
                                           std::uint32_t framing_bytes) const;
  // The same of the scheduler of a host's grants.
  [[nodiscard]] proto::GrantOptions grant_options(Bandwidth host_rate, std::uint64_t seed) const;
  [[nodiscard]] proto::TransferOrder transfer_order() const;
};

// Flows are tensors of elements of this size.
inline constexpr Bytes kDlcpElement{4};
[[nodiscard]] std::int64_t dlcp_elements(std::uint64_t bytes);  // the last may be short

class DlcpTransport final : public TransportFactory {
 public:
  DlcpTransport(const DlcpParameters& parameters, std::string description)
      : parameters_(parameters), description_(std::move(description)) {}

  [[nodiscard]] const DlcpParameters* dlcp() const override { return &parameters_; }
  // Must not be called: DLCP flows have no senders of their own.
  [[nodiscard]] std::unique_ptr<Sender> make_sender(std::uint64_t flow_bytes,
                                                    std::optional<double> window) const override;
  // A segment carries whole elements.
  [[nodiscard]] std::uint64_t piece_bytes() const override {
    return static_cast<std::uint64_t>(parameters_.segment.count() / kDlcpElement.count() *
                                      kDlcpElement.count());
  }
  [[nodiscard]] std::uint32_t header_bytes() const override {
    return static_cast<std::uint32_t>(parameters_.header.count());
  }
  [[nodiscard]] std::string describe() const override { return description_; }

 private:
  DlcpParameters parameters_;
  std::string description_;
};

void bind_parameters(ParameterBinder& binder, DlcpParameters& parameters);
MadeTransport make_dlcp(DlcpParameters parameters, const KeyValues& given = {});

}  // namespace thalweg::sim
