#include "sim/atp/atp_transport.h"

#include <fmt/core.h>

#include <bit>

#include "base/check.h"
#include "proto/atp/options.h"

namespace thalweg::sim {
namespace {

constexpr Range<Duration> kWaits{Duration::microseconds(1), Duration::milliseconds(3'600'000)};

void bind_shared(ParameterBinder& binder, AggregationParameters& parameters) {
  binder.bind("elements", parameters.elements,
              {1, static_cast<std::uint32_t>(wire::kAtpMostElements)},
              "elements of a packet, 4 bytes each");
  binder.bind("header", parameters.header, {Bytes(0), Bytes(500)}, "header of a packet");
  binder.bind("timeout", parameters.timeout, kWaits, "when a packet without answer is sent again");
  binder.bind("deadline", parameters.deadline, kWaits,
              "when a contribution that has not come fails the job");
  binder.bind("host_queue", parameters.host_queue, {Bytes(1), Bytes(1 << 30)},
              "bytes that a host's port takes ahead, where the network does not say");
}

template <class Parameters>
MadeTransport made(const char* name, Parameters parameters, const KeyValues& given) {
  ParameterBinder binder(name, given);
  bind_parameters(binder, parameters);
  THALWEG_TRY_STATUS(binder.finish());
  return MadeTransport(std::make_unique<AggregationTransport>(parameters, binder.describe()));
}

}  // namespace

// As in section 6 of the ATP paper, a packet has 32 elements in 180 bytes, and the pool suits 100
// Gb/s.
SwitchmlParameters::SwitchmlParameters() {
  switchml = true;
  elements = 32;
  header = Bytes(52);
  window = 512;
}

std::unique_ptr<Sender> AggregationTransport::make_sender(std::uint64_t /*flow_bytes*/,
                                                          std::optional<double> /*window*/) const {
  CHECK(false, "what is aggregated is driven by AggregationHosts");
  return nullptr;
}

void bind_parameters(ParameterBinder& binder, AtpParameters& parameters) {
  bind_shared(binder, parameters);
  binder.bind("window", parameters.window, {1, proto::AtpWorkerOptions::kMostWindow},
              "most packets in flight, a power of two");
  if (!std::has_single_bit(parameters.window)) binder.fail("window", "it is no power of two");
  binder.bind("timeout_min", parameters.timeout_min, kWaits, "shortest timeout");
  binder.bind("timeout_max", parameters.timeout_max, kWaits, "longest timeout");
  // A worker's timeout starts at `timeout` and then stays between the other two.
  if (parameters.timeout < parameters.timeout_min) {
    binder.fail("timeout",
                fmt::format("{} is below timeout_min, {}; at least timeout_min is allowed",
                            to_string(parameters.timeout), to_string(parameters.timeout_min)));
  }
  if (parameters.timeout_max < parameters.timeout) {
    binder.fail("timeout_max",
                fmt::format("{} is below timeout, {}; at least timeout is allowed",
                            to_string(parameters.timeout_max), to_string(parameters.timeout)));
  }
  binder.bind("congestion_control", parameters.congestion_control,
              "off: the window is always the largest");
  binder.bind("iw", parameters.initial_window, {1, proto::AtpWorkerOptions::kMostWindow},
              "packets of the first window");
  binder.bind("step", parameters.step, {Bytes(1), Bytes(1 << 30)}, "what the window grows by");
  binder.bind("threshold", parameters.threshold, {Bytes(1), Bytes(std::int64_t{1} << 40)},
              "where slow start ends at first");
  binder.bind("dupacks", parameters.out_of_sequence, {0, 1'000'000},
              "sums of later packets in a row that mean loss, 0 for never");
  binder.bind("multicast", parameters.multicast, "switches copy sums for workers, not the server");
  binder.bind("own_sums", parameters.own_sums,
              "a server on a worker's host adds that worker's gradients itself");
  binder.bind("forwarding", parameters.forwarding, {0, 1},
              "part of the packets that switches pass on as if they had no memory");
}

void bind_parameters(ParameterBinder& binder, SwitchmlParameters& parameters) {
  bind_shared(binder, parameters);
  binder.bind("pool", parameters.window, {1, 1U << 20},
              "packets in flight; the job takes two slots of the switch for each");
}

MadeTransport make_atp(AtpParameters parameters, const KeyValues& given) {
  return made("atp", parameters, given);
}

MadeTransport make_switchml(SwitchmlParameters parameters, const KeyValues& given) {
  return made("switchml", parameters, given);
}

}  // namespace thalweg::sim
