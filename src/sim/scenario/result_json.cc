#include "sim/scenario/result_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/number.h"

namespace thalweg::sim {
namespace {

Json percentiles(const Histogram& times) {
  if (times.count() == 0) return {{"count", 0}};
  return {{"count", times.count()},          {"mean", times.mean()},
          {"p50", times.percentile(50)},     {"p99", times.percentile(99)},
          {"p99.9", times.percentile(99.9)}, {"max", times.max()}};
}

// The mean and the least share of a flow that had arrived at its end.
Json arrived_json(const std::vector<FlowResult>& flows) {
  if (flows.empty()) return {{"mean", nullptr}, {"least", nullptr}};
  double sum = 0;
  double least = 1;
  for (const FlowResult& flow : flows) {
    sum += flow.arrived;
    least = std::min(least, flow.arrived);
  }
  return {{"mean", sum / static_cast<double>(flows.size())}, {"least", least}};
}

std::uint64_t retransmissions_of(const std::vector<FlowResult>& flows) {
  std::uint64_t sum = 0;
  for (const FlowResult& flow : flows) sum += flow.counters.retransmissions;
  return sum;
}

// The goodput of a group's flows in Gb/s, from the start of the first to the end of the last.
double goodput_of(const std::vector<FlowResult>& flows, std::size_t group) {
  double bytes = 0;
  std::optional<Time> start;
  Time end;
  for (const FlowResult& flow : flows) {
    if (flow.spec.tag != group) continue;
    bytes += static_cast<double>(flow.spec.bytes);
    start = start ? std::min(*start, flow.start) : flow.start;
    end = std::max(end, flow.end);
  }
  return start ? bytes * 8e-9 / (end - *start).s() : 0;
}

Json aggregation_json(const AggregationCounters& c) {
  return {{"packets_sent", c.sent},         {"retransmissions", c.retransmissions},
          {"timeouts", c.timeouts},         {"marks", c.marks},
          {"aggregated", c.aggregated},     {"completed", c.completed},
          {"collisions", c.collisions},     {"forwarded", c.forwarded},
          {"partial_sums", c.partial_sums}, {"expired", c.expired},
          {"most_slots", c.most_slots},     {"packets_at_servers", c.at_servers}};
}

Json job_json(const JobResult& job, const Histogram& flows) {
  Json iterations = Json::array();
  Json slowest = Json::array();
  double sum = 0;
  for (const IterationResult& i : job.iterations) {
    iterations.push_back(i.duration().ms());
    slowest.push_back(i.slowest_worker.ms());
    sum += i.duration().ms();
  }
  Json mean;  // null while the job is not done
  Json pace;  // null until then too; differs from the mean where iterations of the job overlap
  if (job.done) {
    mean = sum / static_cast<double>(job.iterations.size());
    const Duration all = job.iterations.back().end - job.iterations.front().start;
    pace = all.ms() / static_cast<double>(job.iterations.size());
  }
  Json worker_paces = Json::array();
  for (const Duration worker : job.worker_paces) worker_paces.push_back(worker.ms());
  Json json{{"name", job.name},
            {"done", job.done},
            {"mean_iteration_ms", mean},
            {"pace_ms", pace},
            {"worker_pace_ms", worker_paces},
            {"iterations_ms", iterations},
            {"slowest_iterations_ms", slowest},
            {"samples_per_s", job.samples_per_second},
            {"samples_per_s_worker", job.samples_per_second / static_cast<double>(job.workers)},
            {"goodput_gbps", job.goodput_gbps},
            {"flow_completion_ms", percentiles(flows)}};
  if (job.aggregation) json["aggregation"] = aggregation_json(*job.aggregation);
  return json;
}

// The keys that may follow at this node of a path.
std::string choices_in(const Json& node) {
  if (node.is_array()) return fmt::format("0 to {}", static_cast<std::int64_t>(node.size()) - 1);
  if (!node.is_object()) return "nothing";
  std::vector<std::string> keys;
  for (const auto& [key, value] : node.items()) keys.push_back(key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

const Json* child_of(const Json& node, std::string_view part) {
  if (node.is_object()) {
    const auto found = node.find(std::string(part));
    return found == node.end() ? nullptr : &*found;
  }
  if (!node.is_array()) return nullptr;
  const std::optional<std::size_t> index = number_in<std::size_t>(part);
  return index && *index < node.size() ? &node[*index] : nullptr;
}

}  // namespace

Json to_json(const ScenarioResult& r, const Scenario& scenario) {
  Json jobs = Json::array();
  for (std::size_t j = 0; j < r.jobs.size(); ++j) {
    jobs.push_back(job_json(r.jobs[j], completion_times_ms(r.flows, j + 1)));
  }
  Json background = Json::array();
  for (std::size_t g = 1 + r.jobs.size(); g < r.groups.size(); ++g) {
    background.push_back({{"name", r.groups[g]},
                          {"goodput_gbps", goodput_of(r.flows, g)},
                          {"flow_completion_ms", percentiles(completion_times_ms(r.flows, g))}});
  }
  const NetworkCounters& c = r.counters;
  const auto busiest = std::ranges::max_element(r.arc_utilisation);
  const auto dropped = c.drops_full + c.drops_selective + c.drops_fault;
  const double loss =
      c.packets_sent == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(c.packets_sent);
  return {{"scenario", scenario.name},
          {"transport", scenario.transport->describe()},
          {"finished", r.finished},
          {"simulated_ms", r.end.since_start().ms()},
          {"jobs", jobs},
          {"background", background},
          {"flow_completion_ms", percentiles(completion_times_ms(r.flows))},
          {"arrived", arrived_json(r.flows)},
          {"flows_unfinished", r.flows_unfinished},
          {"failures", r.failures},
          {"packets_sent", c.packets_sent},
          {"packet_hops", c.packet_hops},
          {"drops_full", c.drops_full},
          {"drops_selective", c.drops_selective},
          {"drops_fault", c.drops_fault},
          {"loss", loss},
          {"marks", c.marks},
          {"timeouts", c.timeouts},
          {"retransmissions", retransmissions_of(r.flows)},
          {"peak_packets", c.peak_packets},
          {"highest_utilisation", busiest == r.arc_utilisation.end() ? 0.0 : *busiest}};
}

Result<std::optional<double>> measure_if_any(const Json& result, std::string_view path) {
  const Json* node = &result;
  for (std::string_view rest = path; !rest.empty();) {
    const Json* child = nullptr;
    std::size_t taken = rest.find('.');
    // A key may itself contain a dot ("p99.9"): the whole rest is tried first.
    if (node->is_object() && node->contains(std::string(rest))) taken = std::string_view::npos;
    child = child_of(*node, rest.substr(0, taken));
    if (child == nullptr) {
      return Error(
          fmt::format("'{}' is not measured: at '{}' there is {}", path, rest, choices_in(*node)));
    }
    node = child;
    rest = taken == std::string_view::npos ? std::string_view() : rest.substr(taken + 1);
  }
  if (node->is_boolean()) return std::optional(node->get<bool>() ? 1.0 : 0.0);
  if (node->is_null()) return std::optional<double>();
  if (!node->is_number()) {
    return Error(fmt::format("'{}' is not a number: it goes on with {}", path, choices_in(*node)));
  }
  return std::optional(node->get<double>());
}

Result<double> measure_of(const Json& result, std::string_view path) {
  THALWEG_TRY(const std::optional<double> value, measure_if_any(result, path));
  if (value) return *value;
  return Error(fmt::format("'{}' has no value: it did not finish", path));
}

}  // namespace thalweg::sim
