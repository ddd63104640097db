// DLCP as a transport of scenarios: its parameters, and the factory that carries them. What runs is
// the endpoint of proto/dlcp; DlcpHosts drives it.
#pragma once

#include <string>
#include <utility>

#include "proto/dlcp/options.h"
#include "sim/tcp/parameter_binder.h"
#include "sim/tcp/transports.h"

namespace thalweg {

// Keys in parentheses.
struct DlcpParameters {
  double bound = 0.1;  // of a flow's segments that may be missing at its end (bound)
  // The same of what servers send back, where a segment stands for many workers; unset: half the
  // bound (pull_bound).
  std::optional<double> pull_bound;
  // Payload of a full packet: with IP, UDP and our own header 1500 bytes (segment, header).
  Bytes segment{1436};
  Bytes header{64};
  // Part of the segments that are ECN-capable: those above the tensor's median magnitude
  // (important).
  double important = 0.5;
  // Where every flow starts and the most it sends; 0: the rate of its host's link (rate).
  Bandwidth rate;
  // The receiver has told the sender that its memory is ready before the tensor is: jobs send the
  // same tensors in every iteration. Off: that takes half a round trip of every flow (in_advance).
  bool in_advance = true;
  // TCP and IP headers of a control message, and its acknowledgement's size (control_header).
  Bytes control_header{40};
  // When a control message without acknowledgement is sent again; doubles up to 100 times this
  // (control_rto).
  Duration control_rto = Duration::milliseconds(1);
  // Bytes of data that a host's port takes ahead where the network sets no host_queue (host_queue).
  Bytes host_queue{12'000};
  std::uint32_t burst = 1;  // packets sent back to back (burst)
  RateControlOptions rate_control;
  GraceOptions grace;
  PathOptions paths;  // used where `balancing` is label

  // Of an endpoint at a host with this rate.
  [[nodiscard]] DlcpOptions options(const std::string& peer, Bandwidth host_rate,
                                    std::uint32_t framing_bytes) const;
};

class DlcpTransport final : public TransportFactory {
 public:
  DlcpTransport(const DlcpParameters& parameters, std::string description)
      : parameters_(parameters), description_(std::move(description)) {}

  [[nodiscard]] const DlcpParameters* dlcp() const override { return &parameters_; }
  // Flows of DLCP have no senders of their own: a bug of the caller.
  [[nodiscard]] std::unique_ptr<Sender> make_sender(std::uint64_t flow_bytes,
                                                    std::optional<double> window) const override;
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

}  // namespace thalweg
