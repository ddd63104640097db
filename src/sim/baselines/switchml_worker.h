// SwitchmlWorker: a worker's end of SwitchML, the baseline of ATP, without I/O. The switch is the
// server (sim/baselines/switchml_switch.h). Each place of the pool is a stop-and-wait protocol of
// its own: the result of sequence s allows sequence s + pool, and only a timeout sends s again.
// There is no congestion control.
//
// Its verbs, and what a driver must do, are those of proto/atp/worker.h. All packets are updates to
// the switch, so AtpTransmit::server has no meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "proto/atp/tensors.h"
#include "wire/atp_packet.h"

namespace thalweg::sim {

struct SwitchmlWorkerOptions {
  std::uint32_t job = 0;
  std::uint8_t index = 0;    // below workers
  std::uint8_t workers = 1;  // 1 to 32
  std::uint32_t pool = 64;   // packets in flight, above 0; the switch must have the same number
  std::uint32_t elements = 64;
  bool keyed = false;
  std::uint32_t most_tensors = 4096;
  Duration timeout = Duration::milliseconds(1);  // section 7.2.3; above 0
  [[nodiscard]] Status validate() const;
};

class SwitchmlWorker {
 public:
  // Requires options that validate.
  explicit SwitchmlWorker(const SwitchmlWorkerOptions& options);

  Result<proto::AtpTensorHandle> start(const proto::AtpTensorSpec& spec, Time now);
  proto::AtpPlacement on_result(const wire::AtpHeader& header, Time now);
  void fail(const std::string& cause, Time now);
  void on_timeout(Time now);
  bool poll_transmit(Time now, proto::AtpTransmit& out);
  bool poll_event(proto::AtpOutcome& out) { return tensors_.poll_event(out); }
  [[nodiscard]] std::optional<Time> next_timeout() const { return wake_; }

  [[nodiscard]] bool idle() const { return tensors_.count() == 0; }
  [[nodiscard]] std::uint64_t retransmitted() const { return retransmitted_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  // One place of the pool: at most one sequence in flight.
  struct Place {
    std::uint64_t sequence = 0;  // in flight, or the next to send
    Time sent;
    bool in_flight = false;
    bool lost = false;
  };

  void wake_at(Time time) { wake_ = wake_ && *wake_ < time ? *wake_ : time; }
  [[nodiscard]] std::string name() const;

  SwitchmlWorkerOptions options_;
  proto::AtpTensors tensors_;
  std::vector<Place> places_;
  std::uint32_t cursor_ = 0;       // where poll_transmit() looks first
  std::uint32_t idle_places_ = 0;  // places found idle since something last changed
  std::uint64_t retransmitted_ = 0;
  std::uint64_t dropped_ = 0;
  std::optional<Time> wake_;
  std::string failed_;
};

}  // namespace thalweg::sim
