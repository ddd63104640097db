// The scenario: in a leaf-spine network under DCTCP with the settings of the DLCP paper (IW 10, K
// 65 packets, RTOmin 10 ms) every host sends long flows, each to a host that receives as many, over
// paths chosen at random. Both simulators get the same list of flows and stop at the same simulated
// time. They take turns, so that other load on the machine affects both alike. Only processor time
// counts, without the set-up.
#include "lab/bench/sim_speed.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "lab/console.h"
#include "lab/files.h"
#include "lab/sweep/thread_crew.h"
#include "lab/terminal.h"
#include "launch/child_process.h"
#include "sim/core/network.h"
#include "sim/tcp/transports.h"
#include "topology/routing.h"

namespace thalweg::lab {
namespace {

constexpr std::int64_t kPacketBytes = 1500;
constexpr std::int64_t kMarkPackets = 65;
constexpr Bytes kMark(kMarkPackets* kPacketBytes);
constexpr Bytes kBuffer(512'000);
constexpr std::uint32_t kFraming = 2;  // as ns-3's point-to-point links add
constexpr std::size_t kMostPaths = 64;
// A turn repeats the run of our simulator until it has taken this long.
constexpr double kTurnSeconds = 0.4;
constexpr double kMilli = 1e3;
constexpr std::chrono::milliseconds kPeerLimit{120'000};

struct BenchFlow {
  Rank source;
  Rank target;
  std::int32_t path = 0;
};

struct Workload {
  std::string topology_argument;
  topology::Topology topology;
  std::vector<BenchFlow> flows;
  Bytes flow_size;
  Duration until;
  std::uint64_t seed = 0;
};

// The sums over all runs of one simulator.
struct SimSpeed {
  std::uint64_t hops = 0;
  std::uint64_t events = 0;
  double cpu_seconds = 0;
  int runs = 0;

  void add(const SimSpeed& other) {
    hops += other.hops;
    events += other.events;
    cpu_seconds += other.cpu_seconds;
    runs += other.runs;
  }
  [[nodiscard]] double hops_per_second() const { return static_cast<double>(hops) / cpu_seconds; }
  [[nodiscard]] double events_per_second() const {
    return static_cast<double>(events) / cpu_seconds;
  }
  // Every run does the same work.
  [[nodiscard]] std::uint64_t hops_a_run() const { return hops / static_cast<std::uint64_t>(runs); }
  [[nodiscard]] std::uint64_t events_a_run() const {
    return events / static_cast<std::uint64_t>(runs);
  }
};

struct SimRuns {
  SimSpeed ours;
  sim::NetworkCounters counters;  // of one run
  // Our simulator on several threads, and on one thread in the same turns: the least time of a run.
  std::size_t threads = 1;
  double one_wall_s = std::numeric_limits<double>::infinity();
  double all_wall_s = std::numeric_limits<double>::infinity();
  [[nodiscard]] double speedup() const { return one_wall_s / all_wall_s; }
  std::optional<SimSpeed> peer;
};

// Each round joins all hosts to one ring, in random order: every host sends to the next.
std::vector<BenchFlow> make_flows(const topology::Topology& topology, int rounds,
                                  std::uint64_t seed) {
  const topology::Routing routing(topology);
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

Result<Workload> make_workload(const SimSpeedOptions& options) {
  const Result<Bytes> flow_size = parse_bytes(options.flow_size);
  if (!flow_size.ok()) return flow_size.error().within("--flow-size");
  if (*flow_size < Bytes(1) || *flow_size > Bytes(1 << 30)) {
    return Error(fmt::format("--flow-size: {} is not allowed: 1B to 1GiB", to_string(*flow_size)));
  }
  const Result<Duration> until = parse_duration(options.until);
  if (!until.ok()) return until.error().within("--until");
  if (*until <= Duration()) return Error("--until: must be above 0");
  THALWEG_TRY(topology::Topology topology, load_topology(options.topology));
  if (topology.host_count() < 2) return Error("--topology: needs at least two hosts");
  std::vector<BenchFlow> flows = make_flows(topology, options.rounds, options.seed);
  return Workload{.topology_argument = options.topology,
                  .topology = std::move(topology),
                  .flows = std::move(flows),
                  .flow_size = *flow_size,
                  .until = *until,
                  .seed = options.seed};
}

struct OneRun {
  sim::NetworkCounters counters;
  double cpu_seconds = 0;
  double wall_seconds = 0;
};

Result<OneRun> run_once(const Workload& workload, const sim::TransportFactory& transport,
                        const sim::Sharding& sharding) {
  sim::NetworkOptions options;
  options.queues.port_buffer = kBuffer;
  options.queues.mark_above = kMark;
  options.framing_bytes = kFraming;
  options.seed = workload.seed;
  sim::Network network(workload.topology, options, sharding);
  const double before = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  for (const BenchFlow& flow : workload.flows) {
    network.start_flow({.source = flow.source,
                        .target = flow.target,
                        .bytes = static_cast<std::uint64_t>(workload.flow_size.count()),
                        .transport = &transport,
                        .path = flow.path});
  }
  network.run(Time::at(workload.until));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const OneRun run{network.counters(), processor_seconds() - before, wall.count()};
  const auto wrong = network.violations();
  if (wrong.empty()) return run;
  return Error("a checker of the simulator complains: " + wrong.front());
}

Status run_ours(const Workload& workload, const sim::TransportFactory& transport,
                SimRuns& measured) {
  THALWEG_TRY(const OneRun run, run_once(workload, transport, {}));
  measured.counters = run.counters;
  measured.one_wall_s = std::min(measured.one_wall_s, run.wall_seconds);
  measured.ours.add({run.counters.packet_hops, run.counters.events, run.cpu_seconds, 1});
  return ok_status();
}

// The same on several threads, which must do the same work.
Status run_on_threads(const Workload& workload, const sim::TransportFactory& transport,
                      ThreadCrew& crew, SimRuns& measured) {
  THALWEG_TRY(const OneRun run,
              run_once(workload, transport, {.shards = measured.threads, .crew = &crew}));
  const sim::NetworkCounters& one = measured.counters;
  const sim::NetworkCounters& all = run.counters;
  if (std::tie(one.packet_hops, one.bytes_delivered, one.marks, one.drops_full) !=
      std::tie(all.packet_hops, all.bytes_delivered, all.marks, all.drops_full)) {
    return Error(fmt::format("{} threads gave another result than one", measured.threads));
  }
  measured.all_wall_s = std::min(measured.all_wall_s, run.wall_seconds);
  return ok_status();
}

Result<SimSpeed> run_peer(const std::string& program, const Workload& workload) {
  std::string list;
  for (const BenchFlow& flow : workload.flows) {
    list += fmt::format("{} {} {} 0 {}\n", flow.source.value(), flow.target.value(),
                        workload.flow_size.count(), flow.path);
  }
  THALWEG_TRY(const launch::ChildOutcome outcome,
              launch::run_child({.command = {program, "--topology", workload.topology_argument,
                                             "--flows", "/dev/stdin", "--transport", "dctcp",
                                             "--buffer", fmt::format("{}B", kBuffer.count()),
                                             "--mark", fmt::format("{}B", kMark.count()), "--until",
                                             to_string(workload.until), "--summary"},
                                 .input = list,
                                 .limit = kPeerLimit}));
  if (outcome.exit_code != 0) return Error(program + ": " + outcome.errors);
  const auto result = nlohmann::json::parse(outcome.output, nullptr, false);
  if (!result.is_object() || !result.contains("packet_hops") || !result.contains("cpu_s")) {
    return Error(program + ": its output is not that of ns3_peer");
  }
  SimSpeed speed{.hops = result["packet_hops"].get<std::uint64_t>(),
                 .events = result["events"].get<std::uint64_t>(),
                 .cpu_seconds = result["cpu_s"].get<double>(),
                 .runs = 1};
  if (speed.cpu_seconds <= 0) return Error(program + ": no processor time measured");
  return speed;
}

// Where `make ns3` puts the peer: beside the folder that this program was built in.
std::string default_peer() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return program.parent_path().parent_path() / "ns3" / "ns3_peer";
}

// The path of ns3_peer, or why there is none.
Result<std::string> find_peer(const SimSpeedOptions& options) {
  if (options.no_ns3) return Error("left out by --no-ns3");
  const std::string path = options.ns3.empty() ? default_peer() : options.ns3;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  return Error(path + " is not there; `make ns3` builds it");
}

nlohmann::ordered_json speed_json(const Workload& workload, const SimRuns& measured,
                                  const std::string& no_peer) {
  const SimSpeed& ours = measured.ours;
  const sim::NetworkCounters& counters = measured.counters;
  const std::optional<SimSpeed>& peer = measured.peer;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json result{{"topology", workload.topology.name()},
                                {"transport", "dctcp"},
                                {"flows", workload.flows.size()},
                                {"simulated_us", workload.until.us()},
                                {"packet_hops_per_s", ours.hops_per_second()},
                                {"events_per_s", ours.events_per_second()},
                                {"threads", measured.threads},
                                {"speedup", measured.speedup()},
                                {"wall_ms", measured.one_wall_s * kMilli},
                                {"threads_wall_ms", measured.all_wall_s * kMilli},
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

// Runs both simulators in turn; only ours if `peer_program` is empty.
Result<SimRuns> measure_speed(const Workload& workload, int turns, std::size_t threads,
                              const std::string& peer_program) {
  THALWEG_TRY(const auto transport, sim::make_transport("dctcp", {}));
  SimRuns measured;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  measured.threads = threads == 0 ? cores : threads;
  ThreadCrew crew(std::min(measured.threads, cores));
  Progress progress;
  for (int turn = 0; turn < turns; ++turn) {
    progress.show(fmt::format("turn {} of {}", turn + 1, turns), static_cast<double>(turn) / turns);
    const double enough = measured.ours.cpu_seconds + kTurnSeconds;
    do {
      THALWEG_TRY_STATUS(run_ours(workload, *transport, measured));
    } while (measured.ours.cpu_seconds < enough);
    THALWEG_TRY_STATUS(run_on_threads(workload, *transport, crew, measured));
    if (peer_program.empty()) continue;
    THALWEG_TRY(const SimSpeed one, run_peer(peer_program, workload));
    if (!measured.peer) measured.peer.emplace();
    measured.peer->add(one);
  }
  return measured;
}

}  // namespace

Result<nlohmann::ordered_json> measure_sim_speed(const SimSpeedOptions& options) {
  THALWEG_TRY(const Workload workload, make_workload(options));
  const Result<std::string> peer_program = find_peer(options);
  if (!peer_program.ok() && !options.ns3.empty() && !options.no_ns3) {
    return peer_program.error().within("--ns3");
  }
  THALWEG_TRY(const SimRuns measured, measure_speed(workload, options.turns, options.threads,
                                                    peer_program.ok() ? *peer_program : ""));
  return speed_json(workload, measured, peer_program.ok() ? "" : peer_program.error().message());
}

std::string sim_speed_text(const nlohmann::ordered_json& r) {
  const auto number = [&](const char* key) { return r[key].get<double>(); };
  std::string text = fmt::format(
      "{}, {} flows under DCTCP, {} us\nthalweg: {:.2f} million packet-hops a second of processor "
      "time ({} hops a run, {} runs, {:.2f} s)\n",
      r["topology"].get<std::string>(), r["flows"].get<std::size_t>(), number("simulated_us"),
      number("packet_hops_per_s") * 1e-6, r["packet_hops"].get<std::uint64_t>(),
      r["runs"].get<int>(), number("cpu_seconds"));
  text += fmt::format("on {} threads: {:.1f} ms a run instead of {:.1f}, {:.2f} times as fast\n",
                      r["threads"].get<std::size_t>(), number("threads_wall_ms"), number("wall_ms"),
                      number("speedup"));
  if (r["ratio"].is_null()) {
    return text + fmt::format("ns-3: not run: {}\n", r["no_ns3"].get<std::string>());
  }
  text += fmt::format(
      "ns-3:    {:.4f} million packet-hops a second of processor time ({} hops a run, {} runs, "
      "{:.2f} s)\nratio:   {:.0f}\n",
      number("ns3_packet_hops_per_s") * 1e-6, r["ns3_packet_hops"].get<std::uint64_t>(),
      r["ns3_runs"].get<int>(), number("ns3_cpu_seconds"), number("ratio"));
  return text;
}

}  // namespace thalweg::lab
