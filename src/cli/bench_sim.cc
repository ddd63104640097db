// Every host of a leaf-spine network sends to another, chosen at random, over DCTCP with the
// settings of the DLCP paper (IW 10, K 65 packets, RTOmin 10 ms), one flow after the other.
#include "cli/bench_sim.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/prng.h"
#include "cli/command.h"
#include "sim/network.h"
#include "sim/tcp/transports.h"

namespace thalweg {
namespace {

constexpr Time kEver = Time::at(Duration::milliseconds(3'600'000));
constexpr std::int64_t kPacketBytes = 1500;
constexpr std::int64_t kMarkPackets = 65;

struct Arguments {
  std::string topology = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G";
  std::string flow_size = "2MB";
  int rounds = 2;
  std::uint64_t seed = 1;
  bool json = false;
};

struct Measured {
  NetworkCounters counters;
  double cpu_seconds = 0;
  double simulated_ms = 0;
  std::int64_t peak_memory_kib = 0;
};

Result<Measured> measure(const Arguments& arguments, const Topology& topology, Bytes flow_size) {
  THALWEG_TRY(const auto transport, make_transport("dctcp", {}));
  NetworkOptions options;
  options.queues.port_buffer = Bytes(std::int64_t{512} << 10);
  options.queues.mark_above = Bytes(kMarkPackets * kPacketBytes);
  options.seed = arguments.seed;
  Network network(topology, options);
  Prng prng(arguments.seed);
  std::vector<int> flows_left(static_cast<std::size_t>(topology.host_count()), arguments.rounds);
  const auto start_flow = [&](Rank source) {
    if (flows_left[source.index()]-- == 0) return;
    const auto others = static_cast<std::uint64_t>(topology.host_count() - 1);
    const auto skip = static_cast<std::int32_t>(prng.below(others)) + 1;
    network.start_flow({.source = source,
                        .target = Rank((source.value() + skip) % topology.host_count()),
                        .bytes = static_cast<std::uint64_t>(flow_size.count()),
                        .transport = transport.get(),
                        .warm = false,
                        .tag = 0});
  };
  network.on_flow_done([&](const FlowResult& result) { start_flow(result.spec.source); });
  const double before = processor_seconds();
  for (Rank r(0); r.value() < topology.host_count(); ++r) start_flow(r);
  const bool finished = network.run(kEver);
  Measured result{.counters = network.counters(),
                  .cpu_seconds = processor_seconds() - before,
                  .simulated_ms = network.now().since_start().ms(),
                  .peak_memory_kib = 0};
  if (!finished) return Error("the flows did not end within an hour of simulated time");
  if (const auto wrong = network.violations(); !wrong.empty()) {
    return Error("a checker of the simulator complains: " + wrong.front());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  result.peak_memory_kib = usage.ru_maxrss;
  return result;
}

Result<int> run(const Arguments& arguments) {
  const Result<Bytes> flow_size = parse_bytes(arguments.flow_size);
  if (!flow_size.ok()) return flow_size.error().within("--flow-size");
  if (*flow_size < Bytes(1)) return Error("--flow-size: must be above 0");
  if (arguments.rounds < 1 || arguments.rounds > 1'000'000) {
    return Error(fmt::format("--rounds: {} is not allowed: 1 to 1000000", arguments.rounds));
  }
  THALWEG_TRY(const Topology topology, load_topology(arguments.topology));
  if (topology.host_count() < 2) return Error("--topology: needs at least two hosts");
  THALWEG_TRY(const Measured m, measure(arguments, topology, *flow_size));
  const auto per_second = [&](std::uint64_t count) {
    return static_cast<double>(count) / m.cpu_seconds;
  };
  const nlohmann::ordered_json result{{"topology", topology.name()},
                                      {"transport", "dctcp"},
                                      {"packet_hops_per_s", per_second(m.counters.packet_hops)},
                                      {"events_per_s", per_second(m.counters.events)},
                                      {"packet_hops", m.counters.packet_hops},
                                      {"events", m.counters.events},
                                      {"cpu_seconds", m.cpu_seconds},
                                      {"simulated_ms", m.simulated_ms},
                                      {"drops", m.counters.drops_full},
                                      {"marks", m.counters.marks},
                                      {"peak_packets", m.counters.peak_packets},
                                      {"peak_memory_kib", m.peak_memory_kib}};
  if (arguments.json) {
    std::cout << result.dump(2) << '\n';
    return 0;
  }
  std::cout << fmt::format(
      "{}: {:.2f} million packet-hops a second of processor time ({} hops, {} events, {:.2f} s; "
      "{:.3f} ms simulated, {} MiB)\n",
      topology.name(), per_second(m.counters.packet_hops) * 1e-6, m.counters.packet_hops,
      m.counters.events, m.cpu_seconds, m.simulated_ms, m.peak_memory_kib / 1024);
  return 0;
}

}  // namespace

void add_bench_sim(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *bench.add_subcommand("sim", "packet-hops a second of the simulator, one core");
  app.add_option("--topology", arguments->topology, "a topology file or shorthand");
  app.add_option("--flow-size", arguments->flow_size, "bytes of every flow, with a unit");
  app.add_option("--rounds", arguments->rounds, "flows that every host sends");
  app.add_option("--seed", arguments->seed, "of the choice of targets and paths");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
