#include "lab/bench/allreduce/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/fraction.h"
#include "lab/bench/allreduce/rank.h"
#include "lab/files.h"
#include "net/job/environment.h"

namespace thalweg::lab::allreduce {
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
  // Without --sizes: powers of 4.
  for (Bytes size(1024); size <= Bytes(options.quick ? 1 << 20 : 64 << 20);
       size = Bytes(size.count() * 4)) {
    sizes.push_back(size);
  }
  return sizes;
}

double slowest_host_gbps(const topology::Topology& topology) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const topology::Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    slowest = std::min(slowest, static_cast<double>(link.spec.rate.bps()) * 1e-9);
  }
  return slowest;
}

// Checks the options of the network, the ranks, the devices and the streams.
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
    if (options.nics != 1) return Error("--nics: a host of a topology has one");
    if (!options.rates.empty()) return Error("--rate: the topology has the rates of its links");
    settings.rate_gbps = slowest_host_gbps(*settings.topology);
  }
  if (options.nics < 1 || options.nics > EmulatedNetwork::kMaxDevices) {
    return Error(fmt::format("--nics: {}: write a number from 1 to {}", options.nics,
                             EmulatedNetwork::kMaxDevices));
  }
  if (options.streams < 1 || options.streams > net::kMaxStreams) {
    return Error(fmt::format("--streams: {}: write a number from 1 to {}", options.streams,
                             net::kMaxStreams));
  }
  if (options.nics > 1 && !options.netns) return Error("--nics: of namespaces: give --netns too");
  if (settings.work.ranks < 2 || settings.work.ranks > kMaxRanks) {
    return Error(
        fmt::format("--ranks: {}: write a number from 2 to {}", settings.work.ranks, kMaxRanks));
  }
  if (options.simulate && (!settings.topology || options.schemes.front().empty())) {
    return Error("--simulate: of schemes on a network: give --topology and --scheme too");
  }
  return ok_status();
}

// Checks --rate: one rate for all devices of a host, or one per device.
Status read_rates(const Options& options, Settings& settings) {
  if (options.rates.empty()) return ok_status();
  const auto nics = static_cast<std::size_t>(options.nics);
  if (options.rates.size() != 1 && options.rates.size() != nics) {
    return Error(fmt::format("--rate: {} of them; one for all devices, or one each, {}, is allowed",
                             options.rates.size(), nics));
  }
  for (const std::string& text : options.rates) {
    const Result<Bandwidth> rate = parse_bandwidth(text);
    if (!rate.ok()) return rate.error().within("--rate");
    settings.rates_gbps.push_back(static_cast<double>(rate->bps()) * 1e-9);
  }
  settings.rates_gbps.resize(nics, settings.rates_gbps.front());
  settings.rate_gbps = std::ranges::min(settings.rates_gbps);
  const bool dlcp = std::ranges::find(options.transports, "dlcp") != options.transports.end();
  if (dlcp && settings.rate_gbps != std::ranges::max(settings.rates_gbps)) {
    return Error("--rate: dlcp is told one rate: give one for all devices");
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
  if (!options.netns && !settings.topology && !(options.rates.empty() && options.loss.empty())) {
    return Error(
        "--rate and --loss: of the links between namespaces: give --netns or --topology too");
  }
  const bool controls = std::ranges::any_of(options.congestion_controls,
                                            [](const std::string& name) { return !name.empty(); });
  if (!options.netns && !settings.topology && controls) {
    return Error("--congestion-control: of namespaces: give --netns or --topology too");
  }
  THALWEG_TRY_STATUS(read_rates(options, settings));
  if (!options.loss.empty()) {
    THALWEG_TRY(settings.loss, within("--loss", parse_fraction(options.loss)));
  }
  if (!options.bound.empty()) {
    THALWEG_TRY(settings.bound, within("--bound", parse_fraction(options.bound)));
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
    THALWEG_TRY(network, EmulatedNetwork::make(settings.work.ranks, options.nics));
  }
  for (int host = 0; host < settings.work.ranks; ++host) {
    int device = 0;
    for (const double gbps : settings.rates_gbps) {
      THALWEG_TRY_STATUS(network->shape(host, gbps, device++));
    }
    THALWEG_TRY_STATUS(network->lose(host, settings.loss));
  }
  return network;
}

}  // namespace thalweg::lab::allreduce
