#include "lab/bench/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "base/units.h"
#include "lab/bench/transport_rates.h"
#include "lab/console.h"
#include "lab/emulation/network_pair.h"
#include "lab/files.h"
#include "lab/terminal.h"
#include "wire/data_header.h"

namespace thalweg::lab {
namespace {

constexpr std::array<int, 4> kLossPerMille = {0, 1, 5, 10};
constexpr double kLossyGbps = 1;
// Bytes of a packet that the shaper counts beside our header and payload: Ethernet, IPv4 and UDP.
constexpr std::size_t kNetworkHeaders = 14 + 20 + 8;
constexpr int kTurns = 3;

// All results. The two processes write them to shared memory.
struct TransportResults {
  std::array<RateResult, kTurns> raw;
  std::array<RateResult, kTurns> tcp;
  std::array<RateResult, kTurns> dlcp;
  std::array<RateResult, kTurns> keyed;
  std::array<TimesResult, kLossPerMille.size()> tcp_times;
  std::array<TimesResult, kLossPerMille.size()> dlcp_times;
  double idle_cpu = 0;
};

struct TransportSettings {
  RateSettings rate;
  TimesSettings times;
  std::uint32_t tcp_tensors = 200;
  int turns = kTurns;
  double idle_seconds = 1;
};

TransportSettings settings_of(const TransportBenchOptions& options) {
  TransportSettings settings;
  settings.rate.seconds = 1.5;
  settings.times.tensors = 500;
  settings.times.loss_bound = options.bound;
  settings.times.line_rate_gbps = kLossyGbps;
  if (options.quick) {
    settings.rate.seconds = 0.2;
    settings.rate.tensor_bytes = std::size_t{8} << 20;
    settings.times.tensors = 20;
    settings.tcp_tensors = 20;
    settings.turns = 1;
    settings.idle_seconds = 0.2;
  }
  return settings;
}

// Shows progress in one of the two processes. The measurements with loss take about as long as a
// turn of those without.
class Stages {
 public:
  Stages(const PairProcess& process, const TransportSettings& settings)
      : shown_(process.sender()),
        count_(settings.turns +
               (process.own_network() ? static_cast<int>(kLossPerMille.size()) : 0)) {}
  // To be called when the next stage begins.
  void next(const std::string& what) {
    if (shown_) progress_.show(what, static_cast<double>(begun_) / count_);
    ++begun_;
  }

 private:
  bool shown_;
  int count_;
  int begun_ = 0;
  Progress progress_;
};

// Runs in both processes.
void measure_transport(const PairProcess& process, const TransportSettings& settings,
                       TransportResults& out) {
  Stages stages(process, settings);
  for (int turn = 0; turn < settings.turns; ++turn) {
    stages.next(fmt::format("turn {} of {} without loss", turn + 1, settings.turns));
    const auto i = static_cast<std::size_t>(turn);
    measure_raw_udp_rate(process, settings.rate, out.raw[i]);
    measure_tcp_rate(process, settings.rate, out.tcp[i]);
    measure_dlcp_rate(process, settings.rate, out.dlcp[i]);
    RateSettings keyed = settings.rate;
    keyed.keyed = true;
    measure_dlcp_rate(process, keyed, out.keyed[i]);
  }
  measure_idle(process, settings.idle_seconds, out.idle_cpu);
  if (!process.own_network()) return;
  process.shape(kLossyGbps);
  TimesSettings tcp = settings.times;
  tcp.tensors = settings.tcp_tensors;
  for (std::size_t i = 0; i < kLossPerMille.size(); ++i) {
    stages.next(fmt::format("at {:.1f} % loss", kLossPerMille[i] * 0.1));
    process.lose(kLossPerMille[i] * 1e-3);
    process.meet();
    measure_dlcp_times(process, settings.times, out.dlcp_times[i]);
    measure_tcp_times(process, tcp, out.tcp_times[i]);
    process.meet();
  }
}

// The result of the turn in the middle.
RateResult median(const std::array<RateResult, kTurns>& all, int turns) {
  std::vector<RateResult> sorted(all.begin(), all.begin() + turns);
  std::ranges::sort(sorted, {}, &RateResult::gbps);
  return sorted[sorted.size() / 2];
}

double cpu_per_gb(const RateResult& rate) { return rate.cpu_seconds / (rate.bytes * 1e-9); }

// The time of one tensor's packets at kLossyGbps, in milliseconds.
double limit_ms(const TimesSettings& settings) {
  const std::size_t packets =
      (settings.tensor_bytes + settings.packet_payload - 1) / settings.packet_payload;
  const std::size_t bytes =
      settings.tensor_bytes + packets * (wire::kDataHeaderSize + kNetworkHeaders);
  return static_cast<double>(bytes) * 8 / (kLossyGbps * 1e9) * 1e3;
}

Histogram histogram(const TimesResult& times) {
  Histogram histogram;
  for (std::uint32_t i = 0; i < times.count; ++i) histogram.add(times.ms[i]);
  return histogram;
}

nlohmann::ordered_json transport_json(const TransportResults& measured,
                                      const TransportSettings& settings, bool own_network,
                                      const std::string& note) {
  nlohmann::ordered_json json;
  const RateResult raw = median(measured.raw, settings.turns);
  const RateResult tcp = median(measured.tcp, settings.turns);
  const RateResult dlcp = median(measured.dlcp, settings.turns);
  const RateResult keyed = median(measured.keyed, settings.turns);
  json["link"] = own_network ? "veth between two network namespaces" : "loopback";
  json["note"] = note;
  json["segment_bytes"] = settings.rate.packet_payload;
  json["tensor_bytes"] = settings.rate.tensor_bytes;
  json["turns"] = settings.turns;
  json["statistic"] = "the median turn; raw UDP, TCP, DLCP and keyed DLCP in turn";
  json["dlcp_gbps"] = dlcp.gbps;
  json["raw_udp_gbps"] = raw.gbps;
  json["tcp_gbps"] = tcp.gbps;
  json["ratio_raw"] = dlcp.gbps / raw.gbps;
  json["ratio_tcp"] = dlcp.gbps / tcp.gbps;
  json["dlcp_keyed_gbps"] = keyed.gbps;
  json["ratio_keyed"] = keyed.gbps / dlcp.gbps;
  json["dlcp_cpu_s_per_gb"] = cpu_per_gb(dlcp);
  json["dlcp_keyed_cpu_s_per_gb"] = cpu_per_gb(keyed);
  json["raw_udp_cpu_s_per_gb"] = cpu_per_gb(raw);
  json["tcp_cpu_s_per_gb"] = cpu_per_gb(tcp);
  json["raw_udp_lost"] = raw.lost_fraction;
  json["idle_cpu"] = measured.idle_cpu;
  json["tcp_congestion_control"] = system_setting("/proc/sys/net/ipv4/tcp_congestion_control");
  json["lossy"] = nlohmann::ordered_json::array();
  if (!own_network) return json;
  for (std::size_t i = 0; i < kLossPerMille.size(); ++i) {
    const Histogram ours = histogram(measured.dlcp_times[i]);
    const Histogram theirs = histogram(measured.tcp_times[i]);
    nlohmann::ordered_json row;
    row["loss"] = kLossPerMille[i] * 1e-3;
    row["rate_gbps"] = kLossyGbps;
    row["tensor_bytes"] = settings.times.tensor_bytes;
    row["loss_bound"] = settings.times.loss_bound;
    row["limit_ms"] = limit_ms(settings.times);
    row["dlcp_p50_ms"] = ours.percentile(50);
    row["dlcp_p99_ms"] = ours.percentile(99);
    row["tcp_p50_ms"] = theirs.percentile(50);
    row["tcp_p99_ms"] = theirs.percentile(99);
    row["ratio"] = ours.percentile(99) / limit_ms(settings.times);
    row["tcp_ratio"] = theirs.percentile(99) / limit_ms(settings.times);
    row["dlcp_samples"] = ours.count();
    row["tcp_samples"] = theirs.count();
    row["dlcp_arrived"] = measured.dlcp_times[i].arrived_fraction;
    row["dlcp_retransmitted"] = measured.dlcp_times[i].retransmitted_fraction;
    json["lossy"].push_back(std::move(row));
  }
  return json;
}

}  // namespace

Result<nlohmann::ordered_json> measure_transport(const TransportBenchOptions& options) {
  const TransportSettings settings = settings_of(options);
  const Result<bool> networks = can_make_networks();
  const std::string note =
      networks.ok() ? ""
                    : fmt::format(
                          "No network namespaces ({}): on loopback, and without the part "
                          "with loss.",
                          networks.error().message());
  THALWEG_TRY(const SharedMemory memory, SharedMemory::make(sizeof(TransportResults)));
  auto* measured = new (memory.data()) TransportResults();
  THALWEG_TRY_STATUS(run_network_pair(networks.ok(), [&](PairProcess& process) {
    measure_transport(process, settings, *measured);
  }));
  return transport_json(*measured, settings, networks.ok(), note);
}

std::string transport_text(const nlohmann::ordered_json& json) {
  const auto number = [&](const char* key) { return json[key].get<double>(); };
  std::string text =
      fmt::format("Transport over {}, {}-byte segments, tensors of {}; {} ({} turns).\n",
                  json["link"].get<std::string>(), json["segment_bytes"].get<int>(),
                  to_string(Bytes(json["tensor_bytes"].get<std::int64_t>())),
                  json["statistic"].get<std::string>(), json["turns"].get<int>());
  if (const auto note = json["note"].get<std::string>(); !note.empty()) text += note + "\n";
  std::vector<std::vector<std::string>> rows = {{"", "Gb/s", "processor s/GB", "DLCP against it"}};
  const auto row = [&](const char* name, const char* gbps, const char* cpu, double ratio) {
    rows.push_back({name, fmt::format("{:.1f}", number(gbps)), fmt::format("{:.2f}", number(cpu)),
                    fmt::format("{:.2f}", ratio)});
  };
  row("DLCP, exact", "dlcp_gbps", "dlcp_cpu_s_per_gb", 1);
  row("DLCP, exact, with a job key", "dlcp_keyed_gbps", "dlcp_keyed_cpu_s_per_gb",
      1 / number("ratio_keyed"));
  row("raw UDP, GSO and GRO", "raw_udp_gbps", "raw_udp_cpu_s_per_gb", number("ratio_raw"));
  row(fmt::format("TCP, {}", json["tcp_congestion_control"].get<std::string>()).c_str(), "tcp_gbps",
      "tcp_cpu_s_per_gb", number("ratio_tcp"));
  text += fmt::format("\n{}\nAn idle endpoint takes {:.3f} % of a core.\n", format_table(rows),
                      number("idle_cpu") * 100);
  if (json["lossy"].empty()) return text;
  const auto& first = json["lossy"][0];
  text += fmt::format(
      "\nOne tensor of {} at {} Gb/s, times in ms; loss of every packet both ways; DLCP's bound is "
      "{} %.\n\n",
      to_string(Bytes(first["tensor_bytes"].get<std::int64_t>())), first["rate_gbps"].get<double>(),
      first["loss_bound"].get<double>() * 100);
  std::vector<std::vector<std::string>> table = {{"loss", "limit", "DLCP p50", "p99", "p99/limit",
                                                  "TCP p50", "p99", "p99/limit", "sent again"}};
  for (const auto& entry : json["lossy"]) {
    const auto value = [&](const char* key) { return entry[key].get<double>(); };
    table.push_back(
        {fmt::format("{:.1f} %", value("loss") * 100), fmt::format("{:.2f}", value("limit_ms")),
         fmt::format("{:.2f}", value("dlcp_p50_ms")), fmt::format("{:.2f}", value("dlcp_p99_ms")),
         fmt::format("{:.2f}", value("ratio")), fmt::format("{:.2f}", value("tcp_p50_ms")),
         fmt::format("{:.2f}", value("tcp_p99_ms")), fmt::format("{:.2f}", value("tcp_ratio")),
         fmt::format("{:.2f} %", value("dlcp_retransmitted") * 100)});
  }
  return text + format_table(table);
}

}  // namespace thalweg::lab
