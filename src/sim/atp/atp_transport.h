// ATP and SwitchML as transports of jobs: their parameters, and the factory that carries them. What
// runs are the ends of proto/atp (for SwitchML proto/atp/switchml_worker.h) and the stages of
// switch/; AggregationHosts and AggregationSwitches drive them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sim/tcp/parameter_binder.h"
#include "sim/tcp/transports.h"

namespace thalweg {

// Keys in parentheses.
struct AggregationParameters {
  bool switchml = false;
  std::uint32_t elements = 64;  // of a packet (elements)
  // Of a packet, all but the elements: with 64 of them 306 bytes, as the paper's packets (header).
  Bytes header{50};
  // The most packets in flight; SwitchML's pool, of which it takes two slots each (window).
  std::uint32_t window = 1024;
  // When a packet without answer is sent again, at first, at least and at most (timeout,
  // timeout_min, timeout_max). SwitchML's is fixed.
  Duration timeout = Duration::milliseconds(1);
  Duration timeout_min = Duration::microseconds(50);
  Duration timeout_max = Duration::milliseconds(100);
  // When a sum that some worker's contribution is missing of fails the job (deadline).
  Duration deadline = Duration::milliseconds(10'000);
  // Bytes of packets that a host's port takes ahead where the network sets no host_queue
  // (host_queue).
  Bytes host_queue{12'000};

  // ATP alone.
  bool congestion_control = true;          // off: the window is `window` (congestion_control)
  std::uint32_t initial_window = 50;       // packets (iw)
  Bytes step{1500};                        // what the window grows by (step)
  Bytes threshold{std::int64_t{1} << 20};  // where slow start ends (threshold)
  std::uint32_t out_of_sequence = 3;  // sums of later packets that mean loss; 0: never (dupacks)
  bool multicast = true;              // switches copy sums, not the server (multicast)
  // Part of the sequences that switches pass on as if they had no slot: figures 8 and 11
  // (forwarding).
  double forwarding = 0;
};

class AggregationTransport final : public TransportFactory {
 public:
  AggregationTransport(const AggregationParameters& parameters, std::string description)
      : parameters_(parameters), description_(std::move(description)) {}

  [[nodiscard]] const AggregationParameters* aggregation() const override { return &parameters_; }
  // What is aggregated has no senders of its own: a bug of the caller.
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

// Defaults of the two.
struct AtpParameters : AggregationParameters {};
struct SwitchmlParameters : AggregationParameters {
  SwitchmlParameters();
};

void bind_parameters(ParameterBinder& binder, AtpParameters& parameters);
void bind_parameters(ParameterBinder& binder, SwitchmlParameters& parameters);
MadeTransport make_atp(AtpParameters parameters, const KeyValues& given = {});
MadeTransport make_switchml(SwitchmlParameters parameters, const KeyValues& given = {});

}  // namespace thalweg
