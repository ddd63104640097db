// ATP and SwitchML as transports of jobs: their parameters, and the factory that carries them. The
// protocols themselves are the ends of proto/atp (for SwitchML sim/baselines/switchml_worker.h) and
// the stages of switch/; AggregationHosts and AggregationSwitches drive them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sim/tcp/parameter_binder.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim {

// The key of each parameter in scenario files is in parentheses.
struct AggregationParameters {
  bool switchml = false;
  std::uint32_t elements = 64;  // elements per packet (elements)
  // Bytes of a packet beside its elements. With 64 elements a packet has 306 bytes, as in the paper
  // (header).
  Bytes header{50};
  // The most packets in flight. For SwitchML this is the pool, which takes two slots per packet
  // (window).
  std::uint32_t window = 1024;
  // How long a packet waits for its answer before it is sent again: at first, at least and at most
  // (timeout, timeout_min, timeout_max). SwitchML's timeout is fixed.
  Duration timeout = Duration::milliseconds(1);
  Duration timeout_min = Duration::microseconds(50);
  Duration timeout_max = Duration::milliseconds(100);
  // The job fails when a sum still lacks the contribution of some worker after this time
  // (deadline).
  Duration deadline = Duration::milliseconds(10'000);
  // Bytes of packets that may wait at a host's port where the network sets no host_queue
  // (host_queue).
  Bytes host_queue{12'000};

  // The parameters below are used by ATP only.
  bool congestion_control = true;          // off: the window is `window` (congestion_control)
  std::uint32_t initial_window = 50;       // packets (iw)
  Bytes step{1500};                        // the window grows by this (step)
  Bytes threshold{std::int64_t{1} << 20};  // slow start ends here (threshold)
  std::uint32_t out_of_sequence = 3;  // sums of later packets that mean loss; 0: never (dupacks)
  bool multicast = true;              // switches copy sums, not the server (multicast)
  // A server on a worker's host adds that worker's gradients itself and keeps its sums (own_sums).
  bool own_sums = true;
  // The share of sequences that switches pass on as if they had no slot, as in figures 8 and 11
  // (forwarding).
  double forwarding = 0;
};

class AggregationTransport final : public TransportFactory {
 public:
  AggregationTransport(const AggregationParameters& parameters, std::string description)
      : parameters_(parameters), description_(std::move(description)) {}

  [[nodiscard]] const AggregationParameters* aggregation() const override { return &parameters_; }
  // Must not be called: tensors that are aggregated have no senders of their own.
  [[nodiscard]] std::unique_ptr<Sender> make_sender(std::uint64_t flow_bytes,
                                                    std::optional<double> window) const override;
  [[nodiscard]] std::uint32_t header_bytes() const override {
    return static_cast<std::uint32_t>(parameters_.header.count());
  }
  [[nodiscard]] std::string describe() const override { return description_; }

 private:
  AggregationParameters parameters_;
  std::string description_;
};

// The default parameters of the two transports.
struct AtpParameters : AggregationParameters {};
struct SwitchmlParameters : AggregationParameters {
  SwitchmlParameters();
};

void bind_parameters(ParameterBinder& binder, AtpParameters& parameters);
void bind_parameters(ParameterBinder& binder, SwitchmlParameters& parameters);
MadeTransport make_atp(AtpParameters parameters, const KeyValues& given = {});
MadeTransport make_switchml(SwitchmlParameters parameters, const KeyValues& given = {});

}  // namespace thalweg::sim
