// The scenario: in a leaf-spine network under DCTCP with the settings of the DLCP paper (IW 10, K
// 65 packets, RTOmin 10 ms) every host sends long flows, each to a host that receives as many, over
// paths chosen at random. Both simulators get the same list of flows and stop at the same simulated
// time. They take turns, so that what else the machine does hits both, and only processor time
// counts, set-up excluded.
#include "cli/bench_sim.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/prng.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "sim/network.h"
#include "sim/tcp/transports.h"
#include "topology/routing.h"

namespace thalweg {
namespace {

constexpr std::int64_t kPacketBytes = 1500;
constexpr std::int64_t kMarkPackets = 65;
constexpr Bytes kMark(kMarkPackets* kPacketBytes);
constexpr Bytes kBuffer(512'000);
constexpr std::uint32_t kFraming = 2;  // as ns-3's point-to-point links add
constexpr std::size_t kMostPaths = 64;
// One turn of ours is repeated until it has taken this long.
constexpr double kTurnSeconds = 0.4;
constexpr std::chrono::milliseconds kPeerLimit{120'000};

struct Arguments {
  std::string topology = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G";
  std::string flow_size = "10MB";
  std::string until = "100us";
  int rounds = 2;
  int turns = 3;
  std::uint64_t seed = 1;
  std::string ns3;
  bool no_ns3 = false;
  bool json = false;
};

struct BenchFlow {
  Rank source;
  Rank target;
  std::int32_t path = 0;
};

struct Workload {
  std::string topology_argument;
  Topology topology;
  std::vector<BenchFlow> flows;
  Bytes flow_size;
  Duration until;
  std::uint64_t seed = 0;
};

// What turns have come to.
struct Speed {
  std::uint64_t hops = 0;
  std::uint64_t events = 0;
  double cpu_seconds = 0;
  int runs = 0;

  void add(const Speed& other) {
    hops += other.hops;
    events += other.events;
    cpu_seconds += other.cpu_seconds;
    runs += other.runs;
  }
  [[nodiscard]] double hops_per_second() const { return static_cast<double>(hops) / cpu_seconds; }
  [[nodiscard]] double events_per_second() const {
    return static_cast<double>(events) / cpu_seconds;
  }
  // A run always does the same.
  [[nodiscard]] std::uint64_t hops_a_run() const { return hops / static_cast<std::uint64_t>(runs); }
  [[nodiscard]] std::uint64_t events_a_run() const {
    return events / static_cast<std::uint64_t>(runs);
  }
};

struct Measured {
  Speed ours;
  NetworkCounters counters;  // of one run
  std::optional<Speed> peer;
};

// Each round joins all hosts to one ring, in random order: everyone sends to the next.
std::vector<BenchFlow> make_flows(const Topology& topology, int rounds, std::uint64_t seed) {
  const Routing routing(topology);
  Prng prng(seed);
  std::vector<std::int32_t> order(static_cast<std::size_t>(topology.host_count()));
  std::iota(order.begin(), order.end(), 0);
  std::vector<BenchFlow> flows;
  flows.reserve(order.size() * static_cast<std::size_t>(rounds));
  for (int round = 0; round < rounds; ++round) {
    prng.shuffle(std::span(order));
    for (std::size_t i = 0; i < order.size(); ++i) {
      BenchFlow flow{Rank(order[i]), Rank(order[(i + 1) % order.size()])};
      const auto paths = routing.paths(flow.source, flow.target, kMostPaths).size();
      flow.path = static_cast<std::int32_t>(prng.below(paths));
      flows.push_back(flow);
    }
  }
  return flows;
}

Result<Workload> make_workload(const Arguments& arguments) {
  const Result<Bytes> flow_size = parse_bytes(arguments.flow_size);
  if (!flow_size.ok()) return flow_size.error().within("--flow-size");
  if (*flow_size < Bytes(1) || *flow_size > Bytes(1 << 30)) {
    return Error(fmt::format("--flow-size: {} is not allowed: 1B to 1GiB", to_string(*flow_size)));
  }
  const Result<Duration> until = parse_duration(arguments.until);
  if (!until.ok()) return until.error().within("--until");
  if (*until <= Duration()) return Error("--until: must be above 0");
  THALWEG_TRY(Topology topology, load_topology(arguments.topology));
  if (topology.host_count() < 2) return Error("--topology: needs at least two hosts");
  std::vector<BenchFlow> flows = make_flows(topology, arguments.rounds, arguments.seed);
  return Workload{.topology_argument = arguments.topology,
                  .topology = std::move(topology),
                  .flows = std::move(flows),
                  .flow_size = *flow_size,
                  .until = *until,
                  .seed = arguments.seed};
}

Status run_ours(const Workload& workload, const TransportFactory& transport, Measured& measured) {
  NetworkOptions options;
  options.queues.port_buffer = kBuffer;
  options.queues.mark_above = kMark;
  options.framing_bytes = kFraming;
  options.seed = workload.seed;
  Network network(workload.topology, options);
  const double before = processor_seconds();
  for (const BenchFlow& flow : workload.flows) {
    network.start_flow({.source = flow.source,
                        .target = flow.target,
                        .bytes = static_cast<std::uint64_t>(workload.flow_size.count()),
                        .transport = &transport,
                        .path = flow.path});
  }
  network.run(Time::at(workload.until));
  const double seconds = processor_seconds() - before;
  const NetworkCounters& counters = measured.counters = network.counters();
  measured.ours.add({counters.packet_hops, counters.events, seconds, 1});
  const auto wrong = network.violations();
  if (wrong.empty()) return ok_status();
  return Error("a checker of the simulator complains: " + wrong.front());
}

Result<Speed> run_peer(const std::string& program, const Workload& workload) {
  std::string list;
  for (const BenchFlow& flow : workload.flows) {
    list += fmt::format("{} {} {} 0 {}\n", flow.source.value(), flow.target.value(),
                        workload.flow_size.count(), flow.path);
  }
  THALWEG_TRY(const ChildOutcome outcome,
              run_child({.command = {program, "--topology", workload.topology_argument, "--flows",
                                     "/dev/stdin", "--transport", "dctcp", "--buffer",
                                     fmt::format("{}B", kBuffer.count()), "--mark",
                                     fmt::format("{}B", kMark.count()), "--until",
                                     to_string(workload.until), "--summary"},
                         .input = list,
                         .limit = kPeerLimit}));
  if (outcome.exit_code != 0) return Error(program + ": " + outcome.errors);
  const auto result = nlohmann::json::parse(outcome.output, nullptr, false);
  if (!result.is_object() || !result.contains("packet_hops") || !result.contains("cpu_s")) {
    return Error(program + ": its output is not that of ns3_peer");
  }
  Speed speed{.hops = result["packet_hops"].get<std::uint64_t>(),
              .events = result["events"].get<std::uint64_t>(),
              .cpu_seconds = result["cpu_s"].get<double>(),
              .runs = 1};
  if (speed.cpu_seconds <= 0) return Error(program + ": no processor time measured");
  return speed;
}

// Beside the folder that this program was built in.
std::string default_peer() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return program.parent_path().parent_path() / "ns3" / "ns3_peer";
}

// The path of ns3_peer, or why there is none.
Result<std::string> find_peer(const Arguments& arguments) {
  if (arguments.no_ns3) return Error("left out by --no-ns3");
  const std::string path = arguments.ns3.empty() ? default_peer() : arguments.ns3;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  return Error(path + " is not there; `make ns3` builds it");
}

nlohmann::ordered_json to_json(const Workload& workload, const Measured& measured,
                               const std::string& no_peer) {
  const auto& [ours, counters, peer] = measured;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json result{{"topology", workload.topology.name()},
                                {"transport", "dctcp"},
                                {"flows", workload.flows.size()},
                                {"simulated_us", workload.until.us()},
                                {"packet_hops_per_s", ours.hops_per_second()},
                                {"events_per_s", ours.events_per_second()},
                                {"ns3_packet_hops_per_s", nullptr},
                                {"ratio", nullptr},
                                {"packet_hops", ours.hops_a_run()},
                                {"ns3_packet_hops", nullptr},
                                {"events", ours.events_a_run()},
                                {"runs", ours.runs},
                                {"cpu_seconds", ours.cpu_seconds},
                                {"ns3_runs", nullptr},
                                {"ns3_cpu_seconds", nullptr},
                                {"drops", counters.drops_full},
                                {"marks", counters.marks},
                                {"peak_packets", counters.peak_packets},
                                {"peak_memory_kib", usage.ru_maxrss}};
  if (peer) {
    result["ns3_packet_hops_per_s"] = peer->hops_per_second();
    result["ratio"] = ours.hops_per_second() / peer->hops_per_second();
    result["ns3_packet_hops"] = peer->hops_a_run();
    result["ns3_runs"] = peer->runs;
    result["ns3_cpu_seconds"] = peer->cpu_seconds;
  } else {
    result["no_ns3"] = no_peer;
  }
  return result;
}

void print(const nlohmann::ordered_json& r) {
  const auto number = [&](const char* key) { return r[key].get<double>(); };
  std::cout << fmt::format(
      "{}, {} flows under DCTCP, {} us\nthalweg: {:.2f} million packet-hops a second of processor "
      "time ({} hops a run, {} runs, {:.2f} s)\n",
      r["topology"].get<std::string>(), r["flows"].get<std::size_t>(), number("simulated_us"),
      number("packet_hops_per_s") * 1e-6, r["packet_hops"].get<std::uint64_t>(),
      r["runs"].get<int>(), number("cpu_seconds"));
  if (r["ratio"].is_null()) {
    std::cout << fmt::format("ns-3: not run: {}\n", r["no_ns3"].get<std::string>());
    return;
  }
  std::cout << fmt::format(
      "ns-3:    {:.4f} million packet-hops a second of processor time ({} hops a run, {} runs, "
      "{:.2f} s)\nratio:   {:.0f}\n",
      number("ns3_packet_hops_per_s") * 1e-6, r["ns3_packet_hops"].get<std::uint64_t>(),
      r["ns3_runs"].get<int>(), number("ns3_cpu_seconds"), number("ratio"));
}

// Without a peer if its program is not given.
Result<Measured> measure(const Workload& workload, int turns, const std::string& peer_program) {
  THALWEG_TRY(const auto transport, make_transport("dctcp", {}));
  Measured measured;
  Progress progress;
  for (int turn = 0; turn < turns; ++turn) {
    progress.show(fmt::format("turn {} of {}", turn + 1, turns));
    const double enough = measured.ours.cpu_seconds + kTurnSeconds;
    do {
      THALWEG_TRY_STATUS(run_ours(workload, *transport, measured));
    } while (measured.ours.cpu_seconds < enough);
    if (peer_program.empty()) continue;
    THALWEG_TRY(const Speed one, run_peer(peer_program, workload));
    if (!measured.peer) measured.peer.emplace();
    measured.peer->add(one);
  }
  return measured;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const Workload workload, make_workload(arguments));
  const Result<std::string> peer_program = find_peer(arguments);
  if (!peer_program.ok() && !arguments.ns3.empty() && !arguments.no_ns3) {
    return peer_program.error().within("--ns3");
  }
  THALWEG_TRY(const Measured measured,
              measure(workload, arguments.turns, peer_program.ok() ? *peer_program : ""));
  const auto result =
      to_json(workload, measured, peer_program.ok() ? "" : peer_program.error().message());
  if (arguments.json) {
    std::cout << result.dump(2) << '\n';
  } else {
    print(result);
  }
  return 0;
}

}  // namespace

void add_bench_sim(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *bench.add_subcommand(
      "sim", "packet-hops a second of the simulator on one core, and of ns-3 beside it");
  app.add_option("--topology", arguments->topology, "a topology file or shorthand");
  app.add_option("--flow-size", arguments->flow_size, "bytes of every flow, with a unit");
  app.add_option("--rounds", arguments->rounds, "flows that every host sends at once")
      ->check(CLI::Range(1, 100));
  app.add_option("--until", arguments->until, "simulated time of a run");
  app.add_option("--turns", arguments->turns, "how often both are measured in turn")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", arguments->seed, "of the choice of targets and paths");
  app.add_option("--ns3", arguments->ns3,
                 "the program ns3_peer (default: ../ns3/ns3_peer beside this one's folder)");
  app.add_flag("--no-ns3", arguments->no_ns3, "measure only our simulator");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
