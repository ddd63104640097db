// ns3_peer: runs a .flows file over a topology in ns-3 and prints what happened as JSON.
// tests/validation/README.md says what is compared, with which settings, and why.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run.h"
#include "topology/format/load.h"

namespace thalweg {
namespace {

constexpr int kBadInput = 2;

struct Arguments {
  std::string topology = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G";
  std::string flows;
  std::string transport = "dctcp";
  std::string mend = "all";
  std::string buffer;
  std::string mark;
  std::string rto_min;
  std::string until;
  std::string sample;
  bool summary = false;
  PeerOptions options;
};

const std::map<std::string, PeerTransport>& transports() {
  static const std::map<std::string, PeerTransport> all{
      {"newreno", PeerTransport::kNewReno},
      {"dctcp", PeerTransport::kDctcp},
  };
  return all;
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("--topology", a.topology, "a shorthand or a file, as `thalweg` reads them")
      ->capture_default_str();
  app.add_option("--flows", a.flows, "lines of: src dst bytes start_us [spine]")->required();
  app.add_option("--transport", a.transport, "newreno or dctcp")
      ->capture_default_str()
      ->check(CLI::IsMember(transports()));
  app.add_option("--mend", a.mend,
                 "what ns-3 does otherwise than the RFCs and is mended: all, none (stock ns-3), or "
                 "names as in peer_socket.h with commas between")
      ->capture_default_str();
  app.add_option("--buffer", a.buffer, "of a switch port: 240p or 512000B (default 512000B)");
  app.add_option("--mark", a.mark, "DCTCP's K: 65p or 97500B (default 97500B)");
  app.add_option("--rto-min", a.rto_min, "least retransmission timeout (default 10ms)");
  app.add_option("--iw", a.options.initial_window, "initial window, segments")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--mss", a.options.mss, "payload of a segment, bytes")
      ->capture_default_str()
      ->check(CLI::Range(100, 9000));
  app.add_option("--ack-every", a.options.ack_every, "segments an acknowledgement covers")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  app.add_option("--g", a.options.dctcp_g, "DCTCP's g")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--timestamps", a.options.timestamps, "RFC 7323: 12 more bytes a packet");
  app.add_flag("!--no-limited-transmit", a.options.limited_transmit, "without RFC 3042");
  app.add_option("--until", a.until, "stop after this much simulated time, for example 100us");
  app.add_option("--sample", a.sample, "look at the longest queue this often, for example 1us");
  app.add_flag("--summary", a.summary, "without the list of flows");
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Error(fmt::format("cannot read {}", path));
  return std::move(text).str();
}

Result<topology::Topology> load_topology(const std::string& argument) {
  if (topology::is_topology_shorthand(argument)) return topology::topology_from_shorthand(argument);
  THALWEG_TRY(const std::string text, read_file(argument));
  return topology::topology_from_file_text(text, argument);
}

// Leaves `out` as it is where the option was not given.
template <class T>
Status read_option(const std::string& text, Result<T> (*parse)(std::string_view), T& out) {
  if (text.empty()) return ok_status();
  THALWEG_TRY(out, parse(text));
  return ok_status();
}

// The options that CLI11 leaves as text, because they carry units.
Status parse_units(Arguments& a) {
  a.options.transport = transports().at(a.transport);
  THALWEG_TRY_STATUS(read_option(a.mend, parse_mends, a.options.mended));
  THALWEG_TRY_STATUS(read_option(a.buffer, parse_queue_length, a.options.buffer));
  THALWEG_TRY_STATUS(read_option(a.mark, parse_queue_length, a.options.mark));
  THALWEG_TRY_STATUS(read_option(a.rto_min, parse_duration, a.options.rto_min));
  THALWEG_TRY_STATUS(read_option(a.until, parse_duration, a.options.until));
  THALWEG_TRY_STATUS(read_option(a.sample, parse_duration, a.options.sample_period));
  if (a.options.transport != PeerTransport::kNewReno &&
      a.options.mark.in_bytes != a.options.buffer.in_bytes) {
    return Error(
        fmt::format("--mark {} and --buffer {}: RED counts both in packets or both in bytes",
                    to_string(a.options.mark), to_string(a.options.buffer)));
  }
  return ok_status();
}

nlohmann::ordered_json settings_json(const Arguments& a) {
  const PeerOptions& o = a.options;
  nlohmann::ordered_json out{{"topology", a.topology},
                             {"flows", a.flows},
                             {"transport", a.transport},
                             {"mend", a.mend},
                             {"mss", o.mss},
                             {"header_bytes", o.header_bytes()},
                             {"framing_bytes", 2},
                             {"initial_window", o.initial_window},
                             {"rto_min", to_string(o.rto_min)},
                             {"ack_every", o.ack_every},
                             {"limited_transmit", o.limited_transmit},
                             {"timestamps", o.timestamps},
                             {"buffer", to_string(o.buffer)}};
  if (o.transport != PeerTransport::kNewReno) {
    out["mark"] = to_string(o.mark);
    out["g"] = o.dctcp_g;
  }
  if (o.until > Duration()) out["until"] = to_string(o.until);
  return out;
}

nlohmann::ordered_json result_json(const Arguments& a, const std::vector<PeerFlow>& flows,
                                   const PeerResult& result) {
  SocketCounters total;
  std::size_t done = 0;
  auto list = nlohmann::ordered_json::array();
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const auto& [time, counters] = result.flows[f];
    total.segments += counters.segments;
    total.retransmissions += counters.retransmissions;
    total.timeouts += counters.timeouts;
    total.echoes += counters.echoes;
    if (time) ++done;
    nlohmann::ordered_json flow{{"src", flows[f].source.value()}, {"dst", flows[f].target.value()},
                                {"bytes", flows[f].bytes},        {"start_s", flows[f].start.s()},
                                {"spine", flows[f].path},         {"fct_s", nullptr}};
    if (time) flow["fct_s"] = time->s();
    flow["segments"] = counters.segments;
    flow["retransmissions"] = counters.retransmissions;
    flow["timeouts"] = counters.timeouts;
    list.push_back(std::move(flow));
  }
  const auto per_s = [&](std::uint64_t count) {
    return result.wall_s > 0 ? static_cast<double>(count) / result.wall_s : 0;
  };
  nlohmann::ordered_json out{
      {"simulator", "ns-3 3.37"},
      {"settings", settings_json(a)},
      {"flows_done", done},
      {"flows_total", flows.size()},
      {"simulated_s", result.simulated.s()},
      {"wall_s", result.wall_s},
      {"cpu_s", result.cpu_s},
      {"packet_hops", result.fabric.packet_hops},
      {"packet_hops_per_s", per_s(result.fabric.packet_hops)},
      {"packet_hops_per_cpu_s",
       static_cast<double>(result.fabric.packet_hops) / std::max(result.cpu_s, 1e-9)},
      {"events", result.events},
      {"events_per_s", per_s(result.events)},
      {"wire_bytes", result.fabric.wire_bytes},
      {"drops", result.fabric.drops},
      {"marks", result.fabric.marks},
      {"segments", total.segments},
      {"retransmissions", total.retransmissions},
      {"timeouts", total.timeouts},
      {"echoes", total.echoes}};
  if (result.queue_samples > 0) {
    out["queue_mean_packets"] = result.mean_queue;
    out["queue_max_packets"] = result.max_queue;
  }
  if (!a.summary) out["flows"] = std::move(list);
  return out;
}

Status run(Arguments& a) {
  THALWEG_TRY_STATUS(parse_units(a));
  THALWEG_TRY(const topology::Topology topology, load_topology(a.topology));
  THALWEG_TRY(const std::string text, read_file(a.flows));
  THALWEG_TRY(const std::vector<PeerFlow> flows, parse_flows(text, a.flows, topology.host_count()));
  THALWEG_TRY(const PeerResult result, run_peer(topology, flows, a.options));
  fmt::print("{}\n", result_json(a, flows, result).dump(1));
  return ok_status();
}

int run_main(int argc, char** argv) {
  CLI::App app("Runs flows over a network in ns-3 and prints the result as JSON.", "ns3_peer");
  Arguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  }
  const Status status = run(arguments);
  if (status.ok()) return 0;
  fmt::print(stderr, "ns3_peer: {}\n", status.error().message());
  return kBadInput;
}

}  // namespace
}  // namespace thalweg

int main(int argc, char** argv) { return thalweg::run_main(argc, argv); }
