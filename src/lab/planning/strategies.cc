#include "lab/planning/strategies.h"

#include <fmt/core.h>

#include <algorithm>

#include "lab/console.h"
#include "lab/sweep/scenario_files.h"
#include "lab/terminal.h"
#include "topology/with_links.h"

namespace thalweg::lab {
namespace {

// The topology with slower links: those that leave a slow region, and those of slow hosts.
topology::Topology slowed(const topology::Topology& topology, const sync::WorkerTree& tree,
                          const sync::Bottlenecks& slow, double factor) {
  std::vector<topology::RegionId> regions;
  for (const int region : slow.regions) {
    regions.push_back(topology.find_region(tree.regions()[static_cast<std::size_t>(region)].name));
  }
  return topology::with_links(topology, [&](topology::LinkId id) {
    const topology::Link& link = topology.links()[id.index()];
    const auto leaves = [&](topology::RegionId region) {
      return topology.contains(region, topology.node(link.a).region) !=
             topology.contains(region, topology.node(link.b).region);
    };
    const auto ends_at = [&](Rank worker) {
      return topology.host(worker) == link.a || topology.host(worker) == link.b;
    };
    topology::LinkSpec spec = link.spec;
    if (std::ranges::any_of(regions, leaves) || std::ranges::any_of(slow.workers, ends_at)) {
      spec.rate = Bandwidth::bits_per_second(
          static_cast<std::int64_t>(spec.rate.bytes_per_second() * 8 / factor));
    }
    return spec;
  });
}

// The mean time of an iteration with computing and exchange, over a period of the strategy.
Duration iteration_of(const sim::ModelTable& model, const sync::Forecast& forecast) {
  std::vector<sync::LayerCost> layers;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    layers.push_back({.size = model.size_of_layer(l), .backward = model.layers[l].backward});
  }
  double seconds = 0;
  for (const Duration exchange : forecast.exchanges) {
    seconds += sync::iteration_time(layers, model.forward_time(), exchange).s();
  }
  return Duration::seconds(seconds / static_cast<double>(forecast.exchanges.size()));
}

// Why the strategy costs accuracy; empty if it does not. Such a strategy may be quick just because
// of that.
std::string drawback(const StrategyRow& row) {
  if (row.servers && row.servers->staleness != 0) return "steps by stale gradients";
  const bool skips = std::ranges::any_of(row.forecast.exchanges,
                                         [](Duration exchange) { return exchange == Duration(); });
  return skips ? "leaves iterations without an exchange" : "";
}

sync::Verdict verdict_of(const std::vector<StrategyRow>& rows, int agree_within) {
  std::vector<sync::Candidate> candidates;
  for (const StrategyRow& row : rows) {
    candidates.push_back({.name = row.strategy,
                          .iteration = row.time(),
                          .iterations_to_consensus = row.forecast.mixing.iterations_to_consensus,
                          .drawback = drawback(row)});
  }
  return sync::choose(candidates, agree_within);
}

// The staleness of a strategy: 0 if there are no servers, null if it has no bound.
nlohmann::ordered_json staleness_json(const std::optional<sync::ServerUse>& servers) {
  if (!servers) return 0;
  return servers->staleness ? nlohmann::ordered_json(*servers->staleness) : nullptr;
}

// The strategies that the user named, or the default ones. Only DS-Sync is told the bottlenecks,
// because it can go round them.
std::vector<std::string> strategies_of(const StrategyArguments& arguments) {
  if (!arguments.strategies.empty()) return arguments.strategies;
  std::string ds_sync = fmt::format("ds-sync:seed={}", arguments.seed.value_or(1));
  for (std::size_t i = 0; i < arguments.slow.size(); ++i) {
    ds_sync += (i == 0 ? ",slow=" : "+") + arguments.slow[i];
  }
  std::vector<std::string> strategies{"ring",      "rat", "hierarchical", "gossip",
                                      "local-sgd", "asp", "ssp"};
  if (arguments.in_switch) {
    strategies.emplace_back(sync::kInSwitch);
    strategies.push_back(fmt::format("{},group={}", ds_sync, sync::kInSwitch));
  }
  strategies.push_back(std::move(ds_sync));
  return strategies;
}

Result<std::vector<StrategyRow>> rows_of(const StrategyArguments& arguments,
                                         const plan::PlanRequest& request,
                                         const plan::PlannerOptions& options,
                                         const std::optional<sim::ModelTable>& model) {
  const sync::ClusterShape shape = sync::shape_of(
      request.topology, Bytes(request.elements * request.element_bytes), options.cost.per_message);
  std::vector<StrategyRow> rows;
  Progress progress;
  const std::vector<std::string> specs = strategies_of(arguments);
  for (const std::string& spec : specs) {
    progress.show(spec, static_cast<double>(rows.size()) / static_cast<double>(specs.size()));
    THALWEG_TRY(const sync::Strategy strategy, sync::Strategy::make(spec, request.topology));
    THALWEG_TRY(sync::Forecast made, sync::forecast(strategy, request, options));
    rows.push_back({.strategy = spec,
                    .forecast = made,
                    .by_table = sync::cost_by_table(spec, shape),
                    .iteration = model ? std::optional(iteration_of(*model, made)) : std::nullopt,
                    .servers = strategy.servers(),
                    .schedule = strategy.schedule()});
  }
  return rows;
}

// Reads the model, if one is named, and sets the size of `subject` to the model's.
Result<std::optional<sim::ModelTable>> read_model(const std::string& name, PlanArguments& subject) {
  if (name.empty()) {
    if (subject.size.empty()) subject.size = "100MB";
    return std::optional<sim::ModelTable>();
  }
  if (!subject.size.empty()) return Error("--size, --model: only one of them is allowed");
  Result<sim::ModelTable> model = scenario_loaders("").model(name);
  if (!model.ok()) return model.error().within("--model");
  subject.size = fmt::format("{}B", model->size().count());
  subject.element_bytes = static_cast<int>(size_of(model->dtype));
  return std::optional(*std::move(model));
}

Status check(const StrategyArguments& arguments) {
  if (arguments.seed && !arguments.strategies.empty()) {
    return Error(
        fmt::format("--seed: {} is not allowed beside --strategy: say ds-sync:seed={} there",
                    *arguments.seed, *arguments.seed));
  }
  if (arguments.in_switch && !arguments.strategies.empty()) {
    return Error("--in-switch: not allowed beside --strategy: name atp or ds-sync:group=atp there");
  }
  if (arguments.agree_within < 1 || arguments.agree_within > sync::kMaxConsensusIterations) {
    return Error(fmt::format("--agree-within: {} is not allowed: 1 to {}", arguments.agree_within,
                             sync::kMaxConsensusIterations));
  }
  if (!(arguments.slow_factor >= 1 && arguments.slow_factor <= 1000)) {
    return Error(fmt::format("--slow-factor: {} is not allowed: 1 to 1000", arguments.slow_factor));
  }
  return ok_status();
}

}  // namespace

Result<StrategyTable> compare_strategies(PlanArguments typed, const StrategyArguments& arguments) {
  THALWEG_TRY_STATUS(check(arguments));
  THALWEG_TRY(const std::optional<sim::ModelTable> model, read_model(arguments.model, typed));
  THALWEG_TRY(const auto subject, PlanSubject::from(typed));
  THALWEG_TRY(const sync::WorkerTree tree, sync::WorkerTree::from_topology(subject->topology));
  sync::Bottlenecks slow;
  for (const std::string& name : arguments.slow) {
    const Status known = sync::add_bottleneck(name, tree, subject->topology, slow);
    if (!known.ok()) return known.error().within("--slow");
  }
  const topology::Topology topology = slowed(subject->topology, tree, slow, arguments.slow_factor);
  const plan::PlanRequest request{.topology = topology,
                                  .elements = subject->request.elements,
                                  .element_bytes = subject->request.element_bytes};
  StrategyTable table;
  THALWEG_TRY(table.rows, rows_of(arguments, request, subject->options, model));
  table.verdict = verdict_of(table.rows, arguments.agree_within);
  table.subject = fmt::format(
      "one iteration's exchange of {} on {}, {} workers",
      model ? fmt::format("{} ({})", model->name, to_string(model->size())) : typed.size,
      topology.name(), topology.host_count());
  return table;
}

nlohmann::ordered_json json_of(const StrategyRow& row, bool best) {
  const sync::Mixing& mixing = row.forecast.mixing;
  nlohmann::ordered_json json{{"strategy", row.strategy},
                              {"rho", mixing.rho},
                              {"rho_per_iteration", mixing.rho_per_iteration()},
                              {"period", mixing.period},
                              {"iterations_to_consensus", mixing.iterations_to_consensus},
                              {"predicted_ms", row.forecast.mean().ms()},
                              {"longest_ms", row.forecast.longest().ms()}};
  json["table_ms"] = row.by_table ? nlohmann::ordered_json(row.by_table->ms()) : nullptr;
  json["iteration_ms"] = row.iteration ? nlohmann::ordered_json(row.iteration->ms()) : nullptr;
  json["staleness"] = staleness_json(row.servers);
  json["best"] = best;
  return json;
}

std::string text_of(const std::vector<StrategyRow>& rows) {
  std::vector<std::vector<std::string>> cells{{"strategy", "predicted", "longest", "table II",
                                               "iteration", "period", "rho", "rho/iteration",
                                               "to consensus"}};
  for (const StrategyRow& row : rows) {
    const sync::Mixing& mixing = row.forecast.mixing;
    cells.push_back({row.strategy, to_human(row.forecast.mean()), to_human(row.forecast.longest()),
                     row.by_table ? to_human(*row.by_table) : "-",
                     row.iteration ? to_human(*row.iteration) : "-", std::to_string(mixing.period),
                     fmt::format("{:.4f}", mixing.rho),
                     fmt::format("{:.4f}", mixing.rho_per_iteration()),
                     std::to_string(mixing.iterations_to_consensus)});
  }
  return format_table(cells) +
         "\npredicted: as packets, mean over a period; rho: what a period leaves of a "
         "disagreement;\nto consensus: iterations until 1 % is left; iteration: with computing, "
         "if there is a --model\n";
}

}  // namespace thalweg::lab
