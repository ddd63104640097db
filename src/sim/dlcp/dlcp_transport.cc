#include "sim/dlcp/dlcp_transport.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace thalweg::sim {

std::unique_ptr<Sender> DlcpTransport::make_sender(std::uint64_t /*flow_bytes*/,
                                                   std::optional<double> /*window*/) const {
  CHECK(false, "flows of DLCP are driven by DlcpHosts");
  return nullptr;
}

std::int64_t dlcp_elements(std::uint64_t bytes) {
  return (static_cast<std::int64_t>(bytes) + kDlcpElement.count() - 1) / kDlcpElement.count();
}

proto::DlcpOptions DlcpParameters::options(const std::string& peer, Bandwidth host_rate,
                                           std::uint32_t framing_bytes) const {
  constexpr std::uint32_t kMostTransfers = 1U << 20;
  proto::DlcpOptions options;
  options.peer = peer;
  options.rate = rate_control;
  options.rate.line_rate = rate > Bandwidth() ? rate : host_rate;
  options.grace = grace;
  options.paths = paths;
  options.burst_segments = burst;
  options.packet_overhead = header + Bytes(framing_bytes);
  options.max_transfers = kMostTransfers;
  options.want = want;
  options.want.most = std::max(want.most, want.after);
  options.order = transfer_order();
  options.paced_by_driver = grants;
  return options;
}

proto::TransferOrder DlcpParameters::transfer_order() const {
  return {.by_urgency = order != Order::kShortest,
          .by_size = order != Order::kOldest,
          .ageing = ageing};
}

proto::GrantOptions DlcpParameters::grant_options(Bandwidth host_rate, std::uint64_t seed) const {
  proto::GrantOptions options = granting;
  options.line_rate = rate > Bandwidth() ? rate : host_rate;
  options.order = transfer_order();
  options.seed = seed;
  return options;
}

namespace {

constexpr std::array<Choice, 3> kOrders{{{"oldest", 0}, {"urgent", 1}, {"shortest", 2}}};

void bind_grants(ParameterBinder& binder, DlcpParameters& parameters) {
  const Range<Duration> waits{Duration::microseconds(1), Duration::milliseconds(3'600'000)};
  proto::GrantOptions& grants = parameters.granting;
  binder.bind("grants", parameters.grants, "receivers grant what may be sent (beyond the paper)");
  binder.bind("overcommit", grants.overcommit, {0.01, 1000},
              "bytes in flight to a host under grants, in bandwidth times round trip");
  binder.bind("parallel", grants.parallel, {1, 1'000'000}, "transfers that share these");
  binder.bind("quantum", grants.quantum, {1, 1'000'000}, "segments of a grant");
  binder.bind("first", grants.first, {0, 1000},
              "bytes that all peers together send without grant, in the same unit");
  binder.bind("busy_above", grants.busy_above, {0.001, 1e6},
              "a host with more to send than this needs no grants, in the same unit");
  binder.bind("busy_parallel", grants.busy_parallel, {1, 1'000'000},
              "a transfer of such a host has in flight what a host may, divided by this");
  binder.bind("round_trip", grants.round_trip, waits, "round trip of an idle network");
  binder.bind("want_after", parameters.want.after, waits, "when a sender asks for a grant first");
  binder.bind_choice("order", parameters.order, kOrders,
                     "who is sent and granted first: oldest, urgent (then shortest) or shortest");
  binder.bind("ageing", parameters.ageing, {0, 1000},
              "bytes that a transfer gains for each that the line carries while it waits");
  binder.bind("ahead", parameters.ahead, {Bytes(1), Bytes(1 << 30)},
              "bytes that a host's port takes ahead where order is not oldest");
}

}  // namespace

void bind_parameters(ParameterBinder& binder, DlcpParameters& parameters) {
  constexpr double kMostBound = 0.999;
  const Range<Duration> waits{Duration::microseconds(1), Duration::milliseconds(3'600'000)};
  proto::RateControlOptions& rate = parameters.rate_control;
  proto::GraceOptions& grace = parameters.grace;
  binder.bind("bound", parameters.bound, {0, kMostBound}, "part of a flow that may be missing");
  binder.bind("pull_bound", parameters.pull_bound, parameters.bound / 2, {0, kMostBound},
              "the same of what servers send back; half the bound if unset");
  binder.bind("segment", parameters.segment, {Bytes(4), Bytes(65'000)}, "payload of a full packet");
  binder.bind("header", parameters.header, {Bytes(0), Bytes(500)}, "header of a data packet");
  binder.bind("important", parameters.important, {0, 1}, "part of the segments not to be dropped");
  binder.bind("rate", parameters.rate, {Bandwidth(), Bandwidth::gbps(100'000)},
              "rate at which flows start, 0 for that of the host's link");
  binder.bind("in_advance", parameters.in_advance, "receivers are ready before tensors are");
  binder.bind("control_header", parameters.control_header, {Bytes(0), Bytes(500)},
              "header of a control message");
  binder.bind("control_rto", parameters.control_rto, waits,
              "when a control message is sent again first");
  binder.bind("host_queue", parameters.host_queue, {Bytes(1), Bytes(1 << 30)},
              "bytes that a host's port takes ahead, where the network does not say");
  binder.bind("burst", parameters.burst, {1, 1000}, "packets sent back to back");
  binder.bind("report_period", rate.report_period, waits, "how often receivers report");
  binder.bind("report_packets", rate.least_report_packets, {1, 1'000'000},
              "fewest packets of a report");
  binder.bind("delta", rate.congestion_factor, {1, 1000},
              "congested when so many times what arrives is sent");
  binder.bind("decrease", rate.decrease_factor, {0.001, 0.999}, "factor of the rate then");
  binder.bind("increase", rate.increase_step, {0.0001, 1}, "part of the line rate added otherwise");
  binder.bind("least_rate", rate.least_rate, {0.000001, 1}, "lowest part of the line rate");
  binder.bind("reset_on_transfer", rate.reset_on_transfer, "a new flow starts at line rate");
  binder.bind("learn_capacity", rate.learn_capacity, "take what came through for the line rate");
  binder.bind("learn_paths", parameters.paths.learn,
              "under label balancing, send less by paths that bring less");
  bind_grants(binder, parameters);
  binder.bind("grace_initial", grace.initial, waits, "wait for late data on an unknown path");
  binder.bind("grace_least", grace.least, waits, "shortest wait for late data");
  binder.bind("grace_most", grace.most, waits, "longest wait for late data");
}

MadeTransport make_dlcp(DlcpParameters parameters, const KeyValues& given) {
  ParameterBinder binder("dlcp", given);
  bind_parameters(binder, parameters);
  THALWEG_TRY_STATUS(binder.finish());
  const Status valid = parameters.options("", Bandwidth::gbps(1), 0).validate();
  if (!valid.ok()) return valid.error().within("transport 'dlcp'");
  const Status grants = parameters.grant_options(Bandwidth::gbps(1), 1).validate();
  if (!grants.ok()) return grants.error().within("transport 'dlcp'");
  return MadeTransport(std::make_unique<DlcpTransport>(parameters, binder.describe()));
}

}  // namespace thalweg::sim
