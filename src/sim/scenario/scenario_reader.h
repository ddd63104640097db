// The reader of scenario files, split over scenario.cc (the network), scenario_work.cc (the work on
// it), scenario_aggregation.cc (switches that aggregate) and scenario_faults.cc (the faults).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"
#include "topology/format/yaml_source.h"
#include "topology/routing.h"

namespace thalweg::sim {

class ScenarioReader : private topology::YamlSource {
 public:
  ScenarioReader(std::string_view source, const ScenarioLoaders& loaders)
      : topology::YamlSource(source), loaders_(loaders) {}

  Result<Scenario> read(const YAML::Node& root);
  // Reads the section 'network' alone.
  Result<NetworkOptions> network_of(const YAML::Node& section);

 private:
  using Words = std::span<const std::string_view>;

  // Returns the index of the node's text in a list of choices.
  Result<std::size_t> choice_of(const YAML::Node& node, std::string_view field,
                                Words choices) const;
  Result<bool> switch_of(const YAML::Node& node, std::string_view field) const;
  Result<Duration> time_of(const YAML::Node& node, std::string_view field) const;
  Result<Rank> host_of(const YAML::Node& node, std::string_view field) const;
  // Hosts by name or by pattern ("rack0-*"), in the order in which they are named, each once.
  Result<std::vector<Rank>> hosts_of(const YAML::Node& node, std::string_view field) const;
  [[nodiscard]] std::vector<Rank> all_hosts() const;
  Result<topology::LinkId> link_of(const YAML::Node& node) const;
  Result<std::int32_t> path_of(const YAML::Node& node, Rank source, Rank target);

  Status read_topology(const YAML::Node& node);
  // Reads a transport: a name, or a map with the name as `kind` and its parameters.
  Result<std::shared_ptr<const TransportFactory>> transport_of(const YAML::Node& node) const;
  Status read_network(const YAML::Node& node);
  // Reads which switches aggregate, and with how much memory.
  Status read_aggregation(const YAML::Node& node);
  Status read_queues(const Fields& fields, QueueOptions& queues, const YAML::Node& node) const;
  Status read_jobs(const YAML::Node& node);
  Result<ScenarioJob> read_job(const YAML::Node& node) const;
  Status read_work_of_job(const Fields& fields, ScenarioJob& job, const YAML::Node& node) const;
  // Reads the job's scheme, or how its tensors are scattered.
  Status read_exchange(const Fields& fields, ScenarioJob& job, const YAML::Node& node) const;
  Status read_group_transport(const Fields& fields, ScenarioJob& job, const YAML::Node& scheme,
                              bool needed) const;
  Status read_aggregation_of_job(const Fields& fields, ScenarioJob& job,
                                 const YAML::Node& node) const;
  Status read_slowdown(const YAML::Node& node, ScenarioJob& job) const;
  // Fails for transports that only jobs can use.
  [[nodiscard]] Status check_for_flows(const TransportFactory& transport,
                                       const YAML::Node& node) const;
  Status read_flows(const YAML::Node& node);
  Status read_background(const YAML::Node& node);
  Result<ScenarioBackground> read_one_background(const YAML::Node& node) const;
  Result<FlowSizes> sizes_of(const YAML::Node& node) const;
  Status read_connections(const YAML::Node& node);
  Status read_faults(const YAML::Node& node);
  Result<RandomPauseFault> read_random_pause(const YAML::Node& node) const;
  Result<ScenarioFault> read_fault(const YAML::Node& node) const;

  static constexpr std::int64_t kMaxSlots = 1 << 22;

  // Reads a field into `out` if it is there.
  template <class T, class Read>
  Status take(const Fields& fields, std::string_view field, T& out, Read read) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(out, read(found->second, field));
    return ok_status();
  }
  // The functions that take() reads a field with.
  auto as_text() const {
    return [this](const YAML::Node& n, std::string_view f) { return text_of(n, f); };
  }
  auto as_whole(std::int64_t least, std::int64_t most) const {
    return
        [=, this](const YAML::Node& n, std::string_view f) { return whole_of(n, f, least, most); };
  }
  auto as_number(double least, double most) const {
    return
        [=, this](const YAML::Node& n, std::string_view f) { return number_of(n, f, least, most); };
  }
  auto as_bytes(Bytes least, Bytes most) const {
    return [=, this](const YAML::Node& n, std::string_view f) {
      return quantity_of(n, f, parse_bytes, least, most);
    };
  }
  auto as_time() const {
    return [this](const YAML::Node& n, std::string_view f) { return time_of(n, f); };
  }
  auto as_switch() const {
    return [this](const YAML::Node& n, std::string_view f) { return switch_of(n, f); };
  }
  auto as_choice(Words words) const {
    return [=, this](const YAML::Node& n, std::string_view f) { return choice_of(n, f, words); };
  }

  const ScenarioLoaders& loaders_;
  Scenario scenario_;
  std::optional<topology::Routing> routing_;  // made when the first flow names its path
};

}  // namespace thalweg::sim
