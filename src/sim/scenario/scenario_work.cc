#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>

#include "sim/atp/atp_transport.h"
#include "sim/scenario/scenario_reader.h"

namespace thalweg::sim {
namespace {

constexpr std::array<std::string_view, 3> kOverlaps{"none", "wait-free", "bytescheduler"};
constexpr std::size_t kMostPaths = 4096;  // how many paths a flow's `path` can tell apart
constexpr Bytes kLargestFlow{std::int64_t{1} << 40};
constexpr double kLeastPart = 0.0001;
constexpr Duration kShortestInterval = Duration::nanoseconds(1);

}  // namespace

// Reads the number of one of the equally short paths between the two hosts.
Result<std::int32_t> ScenarioReader::path_of(const YAML::Node& node, Rank source, Rank target) {
  if (!routing_) routing_.emplace(*scenario_.topology);
  const std::size_t count = routing_->paths(source, target, kMostPaths).size();
  THALWEG_TRY(const std::int64_t path,
              whole_of(node, "path", 0, static_cast<std::int64_t>(count) - 1));
  return static_cast<std::int32_t>(path);
}

Status ScenarioReader::read_slowdown(const YAML::Node& node, ScenarioJob& job) const {
  if (!node.IsMap()) return error(node, "'slowdown' must be a map from host to factor");
  job.training.slowdown.assign(job.hosts.size(), 1);
  for (const auto& entry : node) {
    THALWEG_TRY(const Rank host, host_of(entry.first, "slowdown"));
    const auto place = std::ranges::find(job.hosts, host);
    if (place == job.hosts.end()) {
      return error(entry.first, "'slowdown': the job does not run on this host");
    }
    THALWEG_TRY(job.training.slowdown[static_cast<std::size_t>(place - job.hosts.begin())],
                number_of(entry.second, "slowdown", 0.001, 1000));
  }
  return ok_status();
}

// Reads the model to train, or the size of one tensor that is combined again and again.
Status ScenarioReader::read_work_of_job(const Fields& fields, ScenarioJob& job,
                                        const YAML::Node& node) const {
  const auto model = fields.find("model");
  const auto size = fields.find("size");
  if ((model == fields.end()) == (size == fields.end())) {
    return error(node, "a job has either 'model' or 'size'");
  }
  if (size != fields.end()) {
    for (const char* const field : {"device_scale", "part"}) {
      if (!fields.contains(field)) continue;
      return error(node, fmt::format("'{}' is for jobs with a 'model'", field));
    }
    THALWEG_TRY(const Bytes bytes,
                quantity_of(size->second, "size", parse_bytes, Bytes(4), topology::kMaxBuffer));
    const std::int64_t elements = bytes.count() / 4;
    job.model.name = "allreduce of " + to_string(bytes);
    job.model.batch = 1;
    job.model.layers.push_back({.name = "tensor",
                                .parameters = elements,
                                .tensors = {elements},
                                .forward = {},
                                .backward = {}});
    return ok_status();
  }
  THALWEG_TRY(const std::string model_name, text_of(model->second, "model"));
  Result<ModelTable> table = loaders_.model(model_name);
  if (!table.ok()) return error(model->second, table.error().message());
  job.model = std::move(*table);
  if (const auto scale = fields.find("device_scale"); scale != fields.end()) {
    THALWEG_TRY(const double factor,
                number_of(scale->second, "device_scale", kLeastDeviceScale, kMostDeviceScale));
    Result<ModelTable> slower = slowed_down(std::move(job.model), factor);
    if (!slower.ok()) return error(scale->second, slower.error().message());
    job.model = std::move(*slower);
  }
  double part = 1;
  THALWEG_TRY_STATUS(take(fields, "part", part, as_number(kLeastPart, 1)));
  if (part < 1) job.model = part_of(std::move(job.model), part);
  return ok_status();
}

Status ScenarioReader::read_exchange(const Fields& fields, ScenarioJob& job,
                                     const YAML::Node& node) const {
  const auto scheme = fields.find("scheme");
  const auto scatter = fields.find("scatter");
  if (job.transport->aggregation() != nullptr) return read_aggregation_of_job(fields, job, node);
  for (const char* const field : {"servers", "slot_limit"}) {
    if (const auto found = fields.find(field); found != fields.end()) {
      return error(found->second, fmt::format("'{}' is for jobs whose transport aggregates in "
                                              "switches: atp, switchml",
                                              field));
    }
  }
  if ((scheme == fields.end()) == (scatter == fields.end())) {
    return error(node, "a job has either 'scheme' or 'scatter'");
  }
  if (scheme != fields.end()) {
    THALWEG_TRY(job.training.scheme, text_of(scheme->second, "scheme"));
    const auto strategy = sync::Strategy::make(job.training.scheme, *job.topology);
    if (!strategy.ok()) return error(scheme->second, strategy.error().message());
    if (strategy->servers()) {
      job.training.scatter.servers = strategy->servers()->servers;
      job.training.scatter.staleness = strategy->servers()->staleness;
    }
    return read_group_transport(fields, job, scheme->second, strategy->uses_switches());
  }
  if (const auto found = fields.find("group_transport"); found != fields.end()) {
    return error(found->second, "'group_transport' is for jobs with a 'scheme'");
  }
  static constexpr std::array<std::string_view, 1> kRequired{"servers"};
  static constexpr std::array<std::string_view, 1> kOptional{"whole"};
  THALWEG_TRY(const Fields of, fields_of(scatter->second, "'scatter'", kRequired, kOptional));
  THALWEG_TRY(const std::int64_t servers,
              whole_of(of.find("servers")->second, "servers", 1, job.topology->host_count()));
  job.training.scatter.servers = static_cast<int>(servers);
  return take(of, "whole", job.training.scatter.whole, as_bytes(Bytes(0), topology::kMaxBuffer));
}

// Reads the transport of groups that switches sum.
Status ScenarioReader::read_group_transport(const Fields& fields, ScenarioJob& job,
                                            const YAML::Node& scheme, bool needed) const {
  const auto given = fields.find("group_transport");
  if (given == fields.end()) {
    if (!needed) return ok_status();
    return error(scheme, fmt::format("'{}' sums in switches: the job needs a 'group_transport', "
                                     "such as {{kind: atp}}",
                                     job.training.scheme));
  }
  if (!needed) {
    return error(given->second, fmt::format("'group_transport': no group of '{}' is summed in "
                                            "switches",
                                            job.training.scheme));
  }
  THALWEG_TRY(job.group_transport, transport_of(given->second));
  const AggregationParameters* const parameters = job.group_transport->aggregation();
  if (parameters == nullptr || parameters->switchml) {
    return error(given->second, "'group_transport' must be of the kind atp");
  }
  return ok_status();
}

// Reads the servers of a job whose tensors switches sum.
Status ScenarioReader::read_aggregation_of_job(const Fields& fields, ScenarioJob& job,
                                               const YAML::Node& node) const {
  const bool switchml = job.transport->aggregation()->switchml;
  if (fields.contains("scheme") || fields.contains("scatter") ||
      fields.contains("group_transport")) {
    return error(node,
                 "a job whose transport aggregates in switches has neither 'scheme' nor "
                 "'scatter' nor 'group_transport'");
  }
  for (const auto& [field, unused] : {std::pair("partition", true), {"slot_limit", switchml}}) {
    if (!unused || !fields.contains(field)) continue;
    return error(node, fmt::format("'{}' means nothing to a job over {}", field,
                                   switchml ? "switchml" : "atp"));
  }
  if (fields.contains("servers") == switchml) {
    return error(node, switchml ? "a job over switchml has no 'servers': the switch is"
                                : "a job over atp needs 'servers'");
  }
  THALWEG_TRY_STATUS(
      take(fields, "servers", job.servers,
           [this](const YAML::Node& n, std::string_view f) { return hosts_of(n, f); }));
  std::int64_t limit = 0;
  THALWEG_TRY_STATUS(take(fields, "slot_limit", limit, as_whole(0, kMaxSlots)));
  job.slot_limit = static_cast<std::uint32_t>(limit);
  return ok_status();
}

Result<ScenarioJob> ScenarioReader::read_job(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 19> kOptional{
      "scheme",       "scatter",    "model",      "size",           "name",
      "overlap",      "partition",  "hosts",      "iterations",     "start",
      "device_scale", "slowdown",   "transport",  "per_tensor",     "part",
      "servers",      "slot_limit", "background", "group_transport"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a job", {}, kOptional));
  ScenarioJob job;
  THALWEG_TRY_STATUS(read_work_of_job(fields, job, node));
  job.transport = scenario_.transport;
  if (const auto own = fields.find("transport"); own != fields.end()) {
    THALWEG_TRY(job.transport, transport_of(own->second));
  }
  if (const auto hosts = fields.find("hosts"); hosts != fields.end()) {
    THALWEG_TRY(job.hosts, hosts_of(hosts->second, "hosts"));
    job.topology = std::make_shared<topology::Topology>(
        topology::restricted_to(*scenario_.topology, job.hosts));
  } else {
    job.hosts = all_hosts();
    job.topology = scenario_.topology;
  }
  THALWEG_TRY_STATUS(read_exchange(fields, job, node));
  if (scenario_.in_pieces && fields.contains("scheme") && job.transport->piece_bytes() == 0) {
    return error(node,
                 "'forward: packets' is for transports that do not look at the size of a message: "
                 "newreno, cubic, dctcp, dlcp");
  }
  job.name = job.model.name;
  THALWEG_TRY_STATUS(take(fields, "name", job.name, as_text()));
  std::size_t overlap = 1;
  THALWEG_TRY_STATUS(take(fields, "overlap", overlap, as_choice(kOverlaps)));
  job.training.overlap = static_cast<Overlap>(overlap);
  if (const auto partition = fields.find("partition"); partition != fields.end()) {
    THALWEG_TRY(job.training.partition, quantity_of(partition->second, "partition", parse_bytes,
                                                    Bytes(1), topology::kMaxBuffer));
  }
  bool per_tensor = false;
  THALWEG_TRY_STATUS(take(fields, "per_tensor", per_tensor, as_switch()));
  if (per_tensor) job.model = by_tensor(job.model);
  THALWEG_TRY_STATUS(take(fields, "background", job.background, as_switch()));
  if (job.background && fields.contains("iterations")) {
    return error(node, "a job in the background has no 'iterations': it goes on as others do");
  }
  std::int64_t iterations = job.background ? kMaxScenarioIterations : 1;
  THALWEG_TRY_STATUS(take(fields, "iterations", iterations, as_whole(1, kMaxScenarioIterations)));
  job.training.iterations = static_cast<int>(iterations);
  THALWEG_TRY_STATUS(take(fields, "start", job.training.start, as_time()));
  if (const auto slowdown = fields.find("slowdown"); slowdown != fields.end()) {
    THALWEG_TRY_STATUS(read_slowdown(slowdown->second, job));
  }
  return job;
}

Status ScenarioReader::read_jobs(const YAML::Node& node) {
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "jobs"));
  if (items.size() > kMaxScenarioJobs) {
    return error(node, fmt::format("'jobs' has more than {} entries", kMaxScenarioJobs));
  }
  for (const YAML::Node& item : items) {
    THALWEG_TRY(ScenarioJob job, read_job(item));
    scenario_.jobs.push_back(std::move(job));
  }
  return ok_status();
}

Status ScenarioReader::check_for_flows(const TransportFactory& transport,
                                       const YAML::Node& node) const {
  if (transport.aggregation() == nullptr) return ok_status();
  return error(node,
               "atp and switchml are transports of jobs: single flows and background need "
               "another one");
}

Status ScenarioReader::read_flows(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 3> kRequired{"from", "to", "size"};
  static constexpr std::array<std::string_view, 2> kOptional{"at", "path"};
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "flows"));
  if (items.size() > kMaxScenarioFlows) {
    return error(node, fmt::format("'flows' has more than {} entries", kMaxScenarioFlows));
  }
  if (!items.empty()) THALWEG_TRY_STATUS(check_for_flows(*scenario_.transport, node));
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const Fields fields, fields_of(item, "a flow", kRequired, kOptional));
    ScenarioFlow flow;
    THALWEG_TRY(flow.source, host_of(fields.find("from")->second, "from"));
    THALWEG_TRY(flow.target, host_of(fields.find("to")->second, "to"));
    if (flow.source == flow.target) return error(item, "a flow goes from a host to itself");
    THALWEG_TRY(flow.size, quantity_of(fields.find("size")->second, "size", parse_bytes, Bytes(1),
                                       kLargestFlow));
    THALWEG_TRY_STATUS(take(fields, "at", flow.at, as_time()));
    THALWEG_TRY_STATUS(
        take(fields, "path", flow.path, [&](const YAML::Node& n, std::string_view /*field*/) {
          return path_of(n, flow.source, flow.target);
        }));
    scenario_.flows.push_back(flow);
  }
  return ok_status();
}

// A fixed size, the name of a distribution, or a map from a size to the share of flows up to it.
Result<FlowSizes> ScenarioReader::sizes_of(const YAML::Node& node) const {
  const auto with_place = [&](Result<FlowSizes> sizes) -> Result<FlowSizes> {
    if (!sizes.ok()) return error(node, "'size': " + sizes.error().message());
    return sizes;
  };
  if (node.IsMap()) {
    std::vector<FlowSizes::Point> points;
    for (const auto& entry : node) {
      FlowSizes::Point point;
      THALWEG_TRY(point.size,
                  quantity_of(entry.first, "size", parse_bytes, Bytes(1), kLargestFlow));
      THALWEG_TRY(point.probability, number_of(entry.second, "size", 0, 1));
      points.push_back(point);
    }
    return with_place(FlowSizes::from_points(std::move(points)));
  }
  THALWEG_TRY(const std::string text, text_of(node, "size"));
  const bool is_number = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (!is_number) return with_place(FlowSizes::by_name(text));
  THALWEG_TRY(const Bytes bytes, quantity_of(node, "size", parse_bytes, Bytes(1), kLargestFlow));
  return FlowSizes::fixed(bytes);
}

Result<ScenarioBackground> ScenarioReader::read_one_background(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 2> kRequired{"pattern", "size"};
  static constexpr std::array<std::string_view, 9> kOptional{
      "name", "load", "every", "from", "to", "start", "stop", "count", "transport"};
  static constexpr std::array<std::string_view, 3> kPatterns{"random", "permutation", "incast"};
  THALWEG_TRY(const Fields fields, fields_of(node, "background", kRequired, kOptional));
  ScenarioBackground background{.name = "background", .options = {}, .transport = {}};
  BackgroundOptions& options = background.options;
  THALWEG_TRY_STATUS(take(fields, "name", background.name, as_text()));
  THALWEG_TRY(const std::size_t pattern,
              choice_of(fields.find("pattern")->second, "pattern", kPatterns));
  options.pattern = static_cast<BackgroundOptions::Pattern>(pattern);
  THALWEG_TRY(options.sizes, sizes_of(fields.find("size")->second));
  options.sources = all_hosts();
  options.targets = all_hosts();
  const auto as_hosts = [this](const YAML::Node& n, std::string_view f) { return hosts_of(n, f); };
  THALWEG_TRY_STATUS(take(fields, "from", options.sources, as_hosts));
  THALWEG_TRY_STATUS(take(fields, "to", options.targets, as_hosts));
  const bool permutation = options.pattern == BackgroundOptions::Pattern::kPermutation;
  if (permutation && fields.contains("to")) {
    return error(node, "a permutation is among the hosts of 'from': it takes no 'to'");
  }
  // With two targets every source has one other than itself. In an incast, a source that is the
  // target sends nothing.
  const bool incast = options.pattern == BackgroundOptions::Pattern::kIncast;
  const bool alone =
      (!incast || options.sources.size() < 2) && options.targets.size() < 2 &&
      std::ranges::find(options.sources, options.targets[0]) != options.sources.end();
  if (permutation ? options.sources.size() < 2 : alone) {
    return error(node, "a host would have only itself to send to");
  }
  if (fields.contains("load") == fields.contains("every")) {
    return error(node, "background has either 'load' or 'every'");
  }
  THALWEG_TRY_STATUS(take(fields, "every", options.every, as_time()));
  if (const auto load = fields.find("load"); load != fields.end()) {
    THALWEG_TRY(const double part, number_of(load->second, "load", 0.0001, 10));
    options.every = arrivals_for_load(options, *scenario_.topology, part);
  }
  options.every = std::max(options.every, kShortestInterval);
  THALWEG_TRY_STATUS(take(fields, "start", options.start, as_time()));
  if (fields.contains("stop")) {
    THALWEG_TRY(options.stop, time_of(fields.find("stop")->second, "stop"));
  }
  if (const auto count = fields.find("count"); count != fields.end()) {
    THALWEG_TRY(const std::int64_t most,
                whole_of(count->second, "count", 1, static_cast<std::int64_t>(kMaxScenarioFlows)));
    options.at_most = static_cast<std::uint64_t>(most);
  }
  const bool endless = !options.stop && !options.at_most;
  if (endless && scenario_.jobs.empty() && scenario_.flows.empty()) {
    return error(node,
                 "background without 'stop' or 'count' runs while there is other work, and "
                 "there is none");
  }
  background.transport = scenario_.transport;
  if (const auto own = fields.find("transport"); own != fields.end()) {
    THALWEG_TRY(background.transport, transport_of(own->second));
  }
  THALWEG_TRY_STATUS(check_for_flows(*background.transport, node));
  return background;
}

Status ScenarioReader::read_background(const YAML::Node& node) {
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "background"));
  if (items.size() > kMaxScenarioBackgrounds) {
    return error(node,
                 fmt::format("'background' has more than {} entries", kMaxScenarioBackgrounds));
  }
  for (const YAML::Node& item : items) {
    THALWEG_TRY(ScenarioBackground background, read_one_background(item));
    scenario_.background.push_back(std::move(background));
  }
  return ok_status();
}

std::vector<Rank> ScenarioReader::all_hosts() const {
  std::vector<Rank> hosts;
  for (Rank rank(0); rank.value() < scenario_.topology->host_count(); ++rank) hosts.push_back(rank);
  return hosts;
}

}  // namespace thalweg::sim
