// All transports by name, and the parameters that they share.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "sim/atp/atp_transport.h"
#include "sim/dlcp/dlcp_transport.h"
#include "sim/tcp/tcp_factory.h"

namespace thalweg::sim {
namespace {

struct Entry {
  std::string_view name;
  MadeTransport (*make)(const KeyValues& given);
  std::vector<ParameterInfo> (*list)();
};

template <class Parameters, MadeTransport (*Make)(Parameters, const KeyValues&)>
constexpr Entry entry(std::string_view name) {
  return {name, [](const KeyValues& given) { return Make(Parameters{}, given); },
          [] {
            const KeyValues nothing;
            Parameters parameters;
            ParameterBinder binder("", nothing);
            bind_parameters(binder, parameters);
            return binder.parameters();
          }};
}

constexpr std::array kTransports{
    entry<NewRenoParameters, make_newreno>("newreno"),
    entry<CubicParameters, make_cubic>("cubic"),
    entry<DctcpParameters, make_dctcp>("dctcp"),
    entry<PiasParameters, make_pias>("pias"),
    entry<PfabricParameters, make_pfabric>("pfabric"),
    entry<DlcpParameters, make_dlcp>("dlcp"),
    entry<AtpParameters, make_atp>("atp"),
    entry<SwitchmlParameters, make_switchml>("switchml"),
};

Result<const Entry*> find_transport(std::string_view name) {
  for (const Entry& transport : kTransports) {
    if (transport.name == name) return &transport;
  }
  return Error(
      fmt::format("'{}' is not a transport: {}", name, fmt::join(transport_names(), ", ")));
}

constexpr std::array kWarmChoices{Choice{"slow_start", static_cast<int>(WarmStart::kSlowStart)},
                                  Choice{"avoidance", static_cast<int>(WarmStart::kAvoidance)}};

}  // namespace

void bind_parameters(ParameterBinder& binder, TcpParameters& parameters) {
  const Range<Duration> timeouts{Duration::nanoseconds(1), Duration::milliseconds(100'000)};
  binder.bind("mss", parameters.mss, {Bytes(2), Bytes(65'000)}, "payload of a full packet");
  binder.bind("header", parameters.header, {Bytes(0), Bytes(500)}, "header of every packet");
  binder.bind("iw", parameters.initial_window, {1, 10'000'000}, "packets of the first window");
  binder.bind("max_window", parameters.max_window, {parameters.mss, Bytes(std::int64_t{1} << 40)},
              "largest window");
  binder.bind("dupacks", parameters.dup_acks, {0, 1'000'000},
              "duplicates that start a fast retransmit, 0 for never");
  binder.bind("limited_transmit", parameters.limited_transmit,
              "send new data on the first two duplicates");
  binder.bind("sack", parameters.sack, "selective acknowledgements");
  binder.bind("rto_min", parameters.rto_min, timeouts, "shortest timeout");
  binder.bind("rto_max", parameters.rto_max, timeouts, "longest timeout");
  if (parameters.rto_max < parameters.rto_min) {
    binder.fail("rto_max", fmt::format("'{}' is below rto_min, '{}'", to_string(parameters.rto_max),
                                       to_string(parameters.rto_min)));
  }
  binder.bind("rto_initial", parameters.rto_initial, parameters.rto_min, timeouts,
              "timeout before a round trip is measured; rto_min if unset");
  binder.bind_choice("warm", parameters.warm, kWarmChoices,
                     "how a flow goes on from an earlier flow's window");
}

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  names.reserve(kTransports.size());
  for (const Entry& transport : kTransports) names.push_back(transport.name);
  return names;
}

MadeTransport make_transport(std::string_view name, const KeyValues& parameters) {
  THALWEG_TRY(const Entry* transport, find_transport(name));
  return transport->make(parameters);
}

Result<std::vector<ParameterInfo>> transport_parameters(std::string_view name) {
  THALWEG_TRY(const Entry* transport, find_transport(name));
  return transport->list();
}

}  // namespace thalweg::sim
