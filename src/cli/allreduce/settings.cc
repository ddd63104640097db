#include "cli/allreduce/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/share.h"
#include "cli/allreduce/rank.h"
#include "cli/command.h"

namespace thalweg::allreduce {
namespace {

constexpr Bytes kMaxSize(std::int64_t{1} << 30);

Result<std::vector<Bytes>> sizes_of(const Options& options, DType type) {
  std::vector<Bytes> sizes;
  for (const std::string& text : options.sizes) {
    THALWEG_TRY(const Bytes size, parse_bytes(text));
    const auto element = static_cast<std::int64_t>(size_of(type));
    if (size <= Bytes() || size > kMaxSize || size.count() % element != 0) {
      return Error(fmt::format("{}: write a multiple of {} up to {}", text,
                               to_string(Bytes(element)), to_string(kMaxSize)));
    }
    sizes.push_back(size);
  }
  if (!sizes.empty()) return sizes;
  // Powers of 4.
  for (Bytes size(1024); size <= Bytes(options.quick ? 1 << 20 : 64 << 20);
       size = Bytes(size.count() * 4)) {
    sizes.push_back(size);
  }
  return sizes;
}

double slowest_host_gbps(const Topology& topology) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    slowest = std::min(slowest, static_cast<double>(link.spec.rate.bps()) * 1e-9);
  }
  return slowest;
}

// The network, and what goes with it.
Status read_network(const Options& options, Settings& settings) {
  settings.work.ranks = options.ranks.value_or(2);
  if (!options.topology.empty()) {
    THALWEG_TRY(settings.topology, load_topology(options.topology));
    if (options.ranks.value_or(settings.topology->host_count()) !=
        settings.topology->host_count()) {
      return Error(fmt::format("--ranks: {}: the topology has {} hosts, and each has a rank",
                               *options.ranks, settings.topology->host_count()));
    }
    settings.work.ranks = settings.topology->host_count();
    if (!options.rate.empty()) return Error("--rate: the topology has the rates of its links");
    settings.rate_gbps = slowest_host_gbps(*settings.topology);
  }
  if (settings.work.ranks < 2 || settings.work.ranks > kMaxRanks) {
    return Error(
        fmt::format("--ranks: {}: write a number from 2 to {}", settings.work.ranks, kMaxRanks));
  }
  if (options.simulate && (!settings.topology || options.schemes.front().empty())) {
    return Error("--simulate: of schemes on a network: give --topology and --scheme too");
  }
  return ok_status();
}

}  // namespace

Result<Settings> settings_of(const Options& options) {
  Settings settings;
  THALWEG_TRY_STATUS(read_network(options, settings));
  const auto within = []<typename T>(const char* option, const Result<T>& result) {
    return result.ok() ? result : Result<T>(result.error().within(option));
  };
  THALWEG_TRY(settings.work.type, within("--type", parse_type(options.type)));
  THALWEG_TRY(settings.work.op, within("--op", parse_op(options.op)));
  THALWEG_TRY(settings.sizes, within("--sizes", sizes_of(options, settings.work.type)));
  if (!options.netns && !settings.topology && !(options.rate.empty() && options.loss.empty())) {
    return Error(
        "--rate and --loss: of the links between namespaces: give --netns or --topology too");
  }
  const bool controls = std::ranges::any_of(options.congestion_controls,
                                            [](const std::string& name) { return !name.empty(); });
  if (!options.netns && !settings.topology && controls) {
    return Error("--congestion-control: of namespaces: give --netns or --topology too");
  }
  if (!options.rate.empty()) {
    THALWEG_TRY(const Bandwidth rate, within("--rate", parse_bandwidth(options.rate)));
    settings.rate_gbps = static_cast<double>(rate.bps()) * 1e-9;
  }
  if (!options.loss.empty()) {
    THALWEG_TRY(settings.loss, within("--loss", parse_share(options.loss)));
  }
  if (!options.bound.empty()) {
    THALWEG_TRY(settings.bound, within("--bound", parse_share(options.bound)));
    if (std::ranges::find(options.transports, "dlcp") == options.transports.end() ||
        !is_floating(settings.work.type) || settings.work.op != ReduceOp::kSum) {
      return Error("--bound: of sums of floats with --transport dlcp");
    }
  }
  if (options.quick) {
    settings.turns = 1;
    settings.idle_ms = 100;
  }
  return settings;
}

Result<std::optional<EmulatedNetwork>> network_of(const Options& options,
                                                  const Settings& settings) {
  std::optional<EmulatedNetwork> network;
  if (!options.netns && !settings.topology) return network;
  if (const auto possible = can_make_networks(); !possible.ok()) {
    return possible.error().within(settings.topology ? "--topology" : "--netns");
  }
  if (settings.topology) {
    THALWEG_TRY(network, EmulatedNetwork::make(*settings.topology));
  } else {
    THALWEG_TRY(network, EmulatedNetwork::make(settings.work.ranks));
  }
  for (int host = 0; host < settings.work.ranks; ++host) {
    if (!settings.topology && settings.rate_gbps > 0) {
      THALWEG_TRY_STATUS(network->shape(host, settings.rate_gbps));
    }
    THALWEG_TRY_STATUS(network->lose(host, settings.loss));
  }
  return network;
}

}  // namespace thalweg::allreduce
