#include "lab/bench/allreduce/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <thread>

#include "lab/files.h"

namespace thalweg::lab::allreduce {
namespace {

constexpr const char* kStatistic =
    "percentiles over all calls of the time of the slowest rank in each call; every call in place, "
    "as soon as the one before has returned; libraries in turn";
constexpr const char* kGbps =
    "1e9 bytes a second, as nccl-tests: algbw is the size of the tensor by the median time, busbw "
    "that times 2(n-1)/n for n ranks";

double algbw_gbps(const Cell& cell) {
  return static_cast<double>(cell.size.count()) / (cell.us.percentile(50) * 1e3);
}

double busbw_gbps(const Cell& cell, int ranks) {
  return algbw_gbps(cell) * 2 * (ranks - 1) / ranks;
}

// other / cell: how many times longer `other` takes, at this percentile.
double ratio(const Cell& cell, const Cell& other, double percent) {
  return other.us.percentile(percent) / cell.us.percentile(percent);
}

bool is_own(const Measured& measured) { return measured.library == "thalweg"; }

// All libraries but our own. Their cells have the same order as ours.
std::vector<const Measured*> peers(const Report& report) {
  std::vector<const Measured*> found;
  for (const Measured& measured : report.measured) {
    if (!is_own(measured)) found.push_back(&measured);
  }
  return found;
}

std::string field_of(const Measured& peer) {
  std::string name = peer.library;
  std::ranges::replace(name, '-', '_');
  return name;
}

nlohmann::ordered_json environment(const Report& report) {
  utsname system{};
  uname(&system);
  return {{"cores", std::thread::hardware_concurrency()},
          {"core_to_core_ns", report.core_to_core_ns},
          {"system", fmt::format("{} {}", system.sysname, system.release)},
          {"tcp_congestion_control", system_setting("/proc/sys/net/ipv4/tcp_congestion_control")}};
}

nlohmann::ordered_json row(const Report& report, const Measured& measured, std::size_t index) {
  const Cell& cell = measured.cells[index];
  nlohmann::ordered_json json = {
      {"size", cell.size.count()},        {"count", cell.elements},
      {"library", measured.library},      {"transport", measured.transport},
      {"p50_us", cell.us.percentile(50)}, {"p99_us", cell.us.percentile(99)},
      {"algbw_gbps", algbw_gbps(cell)},   {"busbw_gbps", busbw_gbps(cell, report.work.ranks)},
      {"samples", cell.us.count()},       {"wrong", cell.wrong}};
  if (!report.congestion_control.empty()) json["congestion_control"] = report.congestion_control;
  if (!is_own(measured)) return json;
  if (!measured.scheme.empty()) json["scheme"] = measured.scheme;
  if (cell.simulated_us) json["simulated_us"] = *cell.simulated_us;
  for (const Measured* peer : peers(report)) {
    json["ratio_" + field_of(*peer)] = ratio(cell, peer->cells[index], 50);
    json["ratio_p99_" + field_of(*peer)] = ratio(cell, peer->cells[index], 99);
  }
  return json;
}

// Adds one row per library and size, and one object per library.
void add_measured(const Report& report, nlohmann::ordered_json& json) {
  for (const Measured& measured : report.measured) {
    nlohmann::ordered_json library = {{"library", measured.library},
                                      {"transport", measured.transport},
                                      {"version", measured.version},
                                      {"settings", measured.settings},
                                      {"idle_cpu", measured.idle_cpu},
                                      {"small_bytes", measured.small.size.count()},
                                      {"small_p50_us", measured.small.us.percentile(50)},
                                      {"small_p99_us", measured.small.us.percentile(99)},
                                      {"small_samples", measured.small.us.count()}};
    if (!report.congestion_control.empty()) {
      library["congestion_control"] = report.congestion_control;
    }
    json["libraries"].push_back(std::move(library));
    for (std::size_t i = 0; i < measured.cells.size(); ++i) {
      json["rows"].push_back(row(report, measured, i));
    }
  }
}

std::string block(const Report& report, const Measured& measured) {
  const std::vector<const Measured*> others =
      is_own(measured) ? peers(report) : std::vector<const Measured*>();
  std::string text = fmt::format("# {}, {} ({}): {}\n", measured.library, measured.transport,
                                 measured.version, measured.settings);
  text += fmt::format("#{:>11} {:>11} {:>8} {:>8} {:>11} {:>11} {:>8} {:>8} {:>7}", "size", "count",
                      "type", "redop", "time", "p99", "algbw", "busbw", "#wrong");
  const bool simulated = !measured.cells.empty() && measured.cells.front().simulated_us;
  if (simulated) text += fmt::format(" {:>11}", "simulated");
  for (const Measured* peer : others) text += fmt::format(" {:>12}", peer->library);
  text += fmt::format("\n#{:>11} {:>11} {:>8} {:>8} {:>11} {:>11} {:>8} {:>8} {:>7}", "(B)",
                      "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  if (simulated) text += fmt::format(" {:>11}", "(us)");
  for (std::size_t i = 0; i < others.size(); ++i) text += fmt::format(" {:>12}", "(times ours)");
  for (std::size_t i = 0; i < measured.cells.size(); ++i) {
    const Cell& cell = measured.cells[i];
    text += fmt::format("\n{:>12} {:>11} {:>8} {:>8} {:>11.1f} {:>11.1f} {:>8.3f} {:>8.3f} {:>7}",
                        cell.size.count(), cell.elements, name_of(report.work.type),
                        name_of(report.work.op), cell.us.percentile(50), cell.us.percentile(99),
                        algbw_gbps(cell), busbw_gbps(cell, report.work.ranks), cell.wrong);
    if (cell.simulated_us) text += fmt::format(" {:>11.1f}", *cell.simulated_us);
    for (const Measured* peer : others) {
      text += fmt::format(" {:>12.2f}", ratio(cell, peer->cells[i], 50));
    }
  }
  return text +
         fmt::format("\n# one element: {:.1f} us, p99 {:.1f} us; at rest {:.2f} % of a core\n",
                     measured.small.us.percentile(50), measured.small.us.percentile(99),
                     measured.idle_cpu * 100);
}

}  // namespace

std::int64_t Report::wrong() const {
  std::int64_t sum = 0;
  for (const Measured& library : measured) {
    sum += library.small.wrong;
    for (const Cell& cell : library.cells) sum += cell.wrong;
  }
  return sum;
}

nlohmann::ordered_json to_json(std::span<const Report> reports) {
  const Report& report = reports.front();
  nlohmann::ordered_json json = {{"ranks", report.work.ranks},
                                 {"type", name_of(report.work.type)},
                                 {"op", name_of(report.work.op)},
                                 {"network", report.network},
                                 {"rate_gbps", nullptr},
                                 {"loss", report.loss},
                                 {"loss_bound", report.bound},
                                 {"turns", report.turns},
                                 {"statistic", kStatistic},
                                 {"gbps_definition", kGbps},
                                 {"ratio_definition", "the peer's time by ours"},
                                 {"environment", environment(report)}};
  if (report.rate_gbps > 0) json["rate_gbps"] = report.rate_gbps;
  json["libraries"] = nlohmann::ordered_json::array();
  json["rows"] = nlohmann::ordered_json::array();
  for (const Report& each : reports) add_measured(each, json);
  return json;
}

std::string to_text(const Report& report) {
  std::string text = fmt::format(
      "# allreduce, {} ranks, {}{}{}; {} turns\n# time: {}\n# bandwidths: {}\n", report.work.ranks,
      report.network, report.congestion_control.empty() ? "" : ", TCP by ",
      report.congestion_control, report.turns, kStatistic, kGbps);
  if (!report.core_to_core_ns.empty()) {
    text += fmt::format(
        "# cores: {:.0f} ns from one to the other and back, at the beginning of each turn and in "
        "the end\n",
        fmt::join(report.core_to_core_ns, ", "));
  }
  for (const Measured& measured : report.measured) text += "#\n" + block(report, measured);
  const std::int64_t wrong = report.wrong();
  return text + fmt::format("#\n# wrong elements: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
}

}  // namespace thalweg::lab::allreduce
