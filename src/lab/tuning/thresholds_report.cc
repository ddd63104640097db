#include "lab/tuning/thresholds_report.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/segment_tag.h"
#include "lab/console.h"
#include "tensor/tags.h"

namespace thalweg::lab {
namespace {

// The names of the layers that a data queue carries.
std::string layers_of(const TunedPort& port, std::size_t queue) {
  const std::size_t first = port.loads.first[queue];
  const std::size_t end = port.loads.first[queue + 1];
  if (first == end) return "none";
  const auto& layers = port.model.layers;
  return end - first == 1 ? layers[first].name
                          : fmt::format("{} … {}", layers[first].name, layers[end - 1].name);
}

std::string to_table(const TunedThresholds& tuned, const ThresholdOptions& options) {
  const TunedPort& port = tuned.port;
  std::string text = fmt::format(
      "{} by {}: the busiest switch port is {} ({}), with {} an iteration, busy {:.0f} % of it.\n"
      "Solved for a load of {:.3g} and a buffer of {}, {:.0f} % of it kept for control.\n\n",
      port.model.name, options.scheme, port.name, to_string(port.rate), to_human(port.bytes),
      100 * port.mean_load, port.load, to_string(port.buffer), 100 * kControlShare);
  std::vector<std::vector<std::string>> rows{{"layers", "queue", "DSCP", "bytes", "utilization",
                                              "drops small above S", "all at L", "small lost",
                                              "large lost"}};
  rows.push_back({"(control)", std::to_string(kControlPriority),
                  std::to_string(tensor::dscp_of(kControlPriority)), "", "", "", "", "", ""});
  for (std::size_t i = 0; i < tuned.settings.queues.size(); ++i) {
    const tune::QueueSetting& setting = tuned.settings.queues[i];
    const tune::QueueThresholds& queue = tuned.solution.queues[i];
    rows.push_back({layers_of(port, i), std::to_string(setting.priority),
                    std::to_string(tensor::dscp_of(setting.priority)),
                    fmt::format("{:.1f} %", 100 * port.loads.shares[i]),
                    fmt::format("{:.3f}", queue.utilization), to_human(setting.threshold),
                    to_human(setting.limit), fmt::format("{:.2g}", queue.small_loss),
                    fmt::format("{:.2g}", queue.large_loss)});
  }
  return text + format_table(rows);
}

nlohmann::ordered_json thresholds_json(const TunedThresholds& tuned,
                                       const ThresholdOptions& options) {
  const TunedPort& port = tuned.port;
  nlohmann::ordered_json out;
  out["model"] = port.model.name;
  out["scheme"] = options.scheme;
  out["port"] = port.name;
  out["port_bps"] = port.rate.bps();
  out["port_bytes"] = port.bytes.count();
  out["port_busy_ms"] = port.busy.ms();
  out["mean_load"] = port.mean_load;
  out["load"] = port.load;
  out["buffer_bytes"] = port.buffer.count();
  out["packet_bytes"] = port.packet.count();
  out["small_fraction"] = options.small_fraction;
  out["exponent"] = port.exponent;
  out["control"] = {{"queue", kControlPriority}, {"dscp", tensor::dscp_of(kControlPriority)}};
  std::vector<double> thresholds;
  for (std::size_t i = 0; i < tuned.settings.queues.size(); ++i) {
    const tune::QueueSetting& setting = tuned.settings.queues[i];
    const tune::QueueThresholds& queue = tuned.solution.queues[i];
    thresholds.push_back(static_cast<double>(setting.threshold.count()));
    out["queues"].push_back({{"queue", setting.priority},
                             {"dscp", tensor::dscp_of(setting.priority)},
                             {"first_layer", port.loads.first[i]},
                             {"layers", port.loads.first[i + 1] - port.loads.first[i]},
                             {"share", port.loads.shares[i]},
                             {"weight_small", port.loads.weights[i].small},
                             {"weight_large", port.loads.weights[i].large},
                             {"utilization", queue.utilization},
                             {"threshold_bytes", setting.threshold.count()},
                             {"limit_bytes", setting.limit.count()},
                             {"small_loss", queue.small_loss},
                             {"large_loss", queue.large_loss}});
  }
  const tune::ArithmeticFit fit = tune::fit_arithmetic(thresholds);
  out["log_cost"] = tuned.solution.log_cost;
  out["arithmetic"] = {{"selective_threshold_bytes", static_cast<std::int64_t>(fit.first)},
                       {"selective_step", fit.step},
                       {"worst_relative_error", fit.worst_relative_error}};
  return out;
}

}  // namespace

Result<std::string> thresholds_report(const TunedThresholds& tuned,
                                      const ThresholdOptions& options) {
  if (options.format == "table") return to_table(tuned, options);
  if (options.format == "json") return thresholds_json(tuned, options).dump(2) + "\n";
  if (options.format == "sonic") return tune::to_sonic(tuned.settings);
  if (options.format == "cumulus") return tune::to_cumulus(tuned.settings);
  if (options.format == "onyx") return tune::to_onyx(tuned.settings);
  if (tuned.settings.queues.size() != kDataPriorities) {
    return Error(fmt::format("--format thalweg with --queues {}: ports of the simulator have {}",
                             options.queues, kPriorityCount));
  }
  return tune::to_scenario(tuned.settings);
}

}  // namespace thalweg::lab
