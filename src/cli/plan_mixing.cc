// `thalweg plan mixing`: strategies side by side, by the time of an iteration's exchange and by how
// fast workers come to one model.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/plan_arguments.h"
#include "cli/scenario_files.h"
#include "sync/forecast.h"
#include "topology/with_links.h"

namespace thalweg {
namespace {

struct Arguments {
  PlanArguments subject;
  std::vector<std::string> strategies;
  std::vector<std::string> slow;
  double slow_factor = 2;
  std::optional<int> seed = {};
  std::string model;
  int agree_within = kAgreeWithin;
  bool schedule = false;
  bool json = false;
};

struct Row {
  std::string strategy;
  Forecast forecast;
  std::optional<Duration> by_table;
  std::optional<Duration> iteration;  // with a model
  std::optional<ServerUse> servers;
  std::optional<Schedule> schedule;
};

// The links that leave the slow regions and those of the slow hosts, slower.
Topology slowed(const Topology& topology, const WorkerTree& tree, const Bottlenecks& slow,
                double factor) {
  std::vector<RegionId> regions;
  for (const int region : slow.regions) {
    regions.push_back(topology.find_region(tree.regions()[static_cast<std::size_t>(region)].name));
  }
  return with_links(topology, [&](LinkId id) {
    const Link& link = topology.links()[id.index()];
    const auto leaves = [&](RegionId region) {
      return topology.contains(region, topology.node(link.a).region) !=
             topology.contains(region, topology.node(link.b).region);
    };
    const auto ends_at = [&](Rank worker) {
      return topology.host(worker) == link.a || topology.host(worker) == link.b;
    };
    LinkSpec spec = link.spec;
    if (std::ranges::any_of(regions, leaves) || std::ranges::any_of(slow.workers, ends_at)) {
      spec.rate = Bandwidth::bits_per_second(
          static_cast<std::int64_t>(spec.rate.bytes_per_second() * 8 / factor));
    }
    return spec;
  });
}

// Computing with the exchange of every iteration of the period, mean.
Duration iteration_of(const ModelTable& model, const Forecast& forecast) {
  std::vector<LayerCost> layers;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    layers.push_back({.size = model.size_of_layer(l), .backward = model.layers[l].backward});
  }
  double seconds = 0;
  for (const Duration exchange : forecast.exchanges) {
    seconds += iteration_time(layers, model.forward_time(), exchange).s();
  }
  return Duration::seconds(seconds / static_cast<double>(forecast.exchanges.size()));
}

// Of the strategies that are quick for a reason that costs accuracy.
std::string against(const Row& row) {
  if (row.servers && row.servers->staleness != 0) return "steps by stale gradients";
  const bool skips = std::ranges::any_of(row.forecast.exchanges,
                                         [](Duration exchange) { return exchange == Duration(); });
  return skips ? "leaves iterations without an exchange" : "";
}

Verdict verdict_of(const std::vector<Row>& rows, int agree_within) {
  std::vector<Candidate> candidates;
  for (const Row& row : rows) {
    candidates.push_back({.name = row.strategy,
                          .iteration = row.iteration.value_or(row.forecast.mean()),
                          .iterations_to_consensus = row.forecast.mixing.iterations_to_consensus,
                          .against = against(row)});
  }
  return choose(candidates, agree_within);
}

// None of one model that all use; null: unbounded.
nlohmann::ordered_json staleness_json(const std::optional<ServerUse>& servers) {
  if (!servers) return 0;
  return servers->staleness ? nlohmann::ordered_json(*servers->staleness) : nullptr;
}

nlohmann::ordered_json json_of(const Row& row, bool best) {
  const Mixing& mixing = row.forecast.mixing;
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
  if (row.schedule) {
    auto& period = json["schedule"] = nlohmann::ordered_json::array();
    for (const Grouping& groups : row.schedule->period) {
      auto& at = period.emplace_back(nlohmann::ordered_json::array());
      for (const Group& group : groups) {
        auto& members = at.emplace_back(nlohmann::ordered_json::array());
        for (const Rank worker : group) members.push_back(worker.value());
      }
    }
  }
  return json;
}

std::string table_of(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> cells{{"strategy", "predicted", "longest", "table II",
                                               "iteration", "period", "rho", "rho/iteration",
                                               "to consensus"}};
  for (const Row& row : rows) {
    const Mixing& mixing = row.forecast.mixing;
    cells.push_back({row.strategy, to_human(row.forecast.mean()), to_human(row.forecast.longest()),
                     row.by_table ? to_human(*row.by_table) : "-",
                     row.iteration ? to_human(*row.iteration) : "-", std::to_string(mixing.period),
                     fmt::format("{:.4f}", mixing.rho),
                     fmt::format("{:.4f}", mixing.rho_per_iteration()),
                     std::to_string(mixing.iterations_to_consensus)});
  }
  return format_table(cells);
}

std::string schedule_text(const Schedule& schedule) {
  std::string text;
  for (std::size_t t = 0; t < schedule.period.size(); ++t) {
    text += fmt::format("iteration {}:", t);
    for (const Group& group : schedule.period[t]) {
      text += " {";
      for (const Rank worker : group) {
        text += fmt::format("{}{}", worker == group.front() ? "" : " ", worker.value());
      }
      text += '}';
    }
    text += '\n';
  }
  return text;
}

// The strategies named, or the paper's. The bottlenecks are DS-Sync's to go round.
std::vector<std::string> strategies_of(const Arguments& arguments) {
  if (!arguments.strategies.empty()) return arguments.strategies;
  std::string ds_sync = fmt::format("ds-sync:seed={}", arguments.seed.value_or(1));
  for (std::size_t i = 0; i < arguments.slow.size(); ++i) {
    ds_sync += (i == 0 ? ",slow=" : "+") + arguments.slow[i];
  }
  return {"ring", "hierarchical", "gossip", "local-sgd", "asp", "ssp", std::move(ds_sync)};
}

Result<std::vector<Row>> rows_of(const Arguments& arguments, const PlanRequest& request,
                                 const PlannerOptions& options,
                                 const std::optional<ModelTable>& model) {
  const ClusterShape shape = shape_of(
      request.topology, Bytes(request.elements * request.element_bytes), options.cost.per_message);
  std::vector<Row> rows;
  Progress progress;
  for (const std::string& spec : strategies_of(arguments)) {
    progress.show(spec);
    THALWEG_TRY(const Strategy strategy, Strategy::make(spec, request.topology));
    THALWEG_TRY(Forecast made, forecast(strategy, request, options));
    rows.push_back({.strategy = spec,
                    .forecast = made,
                    .by_table = cost_by_table(spec, shape),
                    .iteration = model ? std::optional(iteration_of(*model, made)) : std::nullopt,
                    .servers = strategy.servers(),
                    .schedule = arguments.schedule ? strategy.schedule() : std::nullopt});
  }
  return rows;
}

// The size is the model's, where there is one.
Result<std::optional<ModelTable>> read_model(Arguments& arguments) {
  if (arguments.model.empty()) {
    if (arguments.subject.size.empty()) arguments.subject.size = "100MB";
    return std::optional<ModelTable>();
  }
  if (!arguments.subject.size.empty()) return Error("--size, --model: only one of them is allowed");
  Result<ModelTable> model = scenario_loaders("").model(arguments.model);
  if (!model.ok()) return model.error().within("--model");
  arguments.subject.size = fmt::format("{}B", model->size().count());
  arguments.subject.element_bytes = static_cast<int>(size_of(model->dtype));
  return std::optional(*std::move(model));
}

Result<int> run(Arguments arguments) {
  if (arguments.seed && !arguments.strategies.empty()) {
    return Error(
        fmt::format("--seed: {} is not allowed beside --strategy: say ds-sync:seed={} there",
                    *arguments.seed, *arguments.seed));
  }
  if (arguments.agree_within < 1 || arguments.agree_within > kMaxConsensusIterations) {
    return Error(fmt::format("--agree-within: {} is not allowed: 1 to {}", arguments.agree_within,
                             kMaxConsensusIterations));
  }
  THALWEG_TRY(const std::optional<ModelTable> model, read_model(arguments));
  if (!(arguments.slow_factor >= 1 && arguments.slow_factor <= 1000)) {
    return Error(fmt::format("--slow-factor: {} is not allowed: 1 to 1000", arguments.slow_factor));
  }
  THALWEG_TRY(const auto subject, PlanSubject::from(arguments.subject));
  THALWEG_TRY(const WorkerTree tree, WorkerTree::from_topology(subject->topology));
  Bottlenecks slow;
  for (const std::string& name : arguments.slow) {
    const Status known = add_bottleneck(name, tree, subject->topology, slow);
    if (!known.ok()) return known.error().within("--slow");
  }
  const Topology topology = slowed(subject->topology, tree, slow, arguments.slow_factor);
  const PlanRequest request{.topology = topology,
                            .elements = subject->request.elements,
                            .element_bytes = subject->request.element_bytes};
  THALWEG_TRY(const std::vector<Row> rows, rows_of(arguments, request, subject->options, model));
  const Verdict verdict = verdict_of(rows, arguments.agree_within);
  if (arguments.json) {
    auto json = nlohmann::ordered_json::array();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      json.push_back(json_of(rows[r], verdict.best == r));
    }
    std::cout << json.dump(arguments.schedule ? -1 : 2) << '\n';
    return 0;
  }
  std::cout
      << "one iteration's exchange of "
      << (model ? fmt::format("{} ({})", model->name, to_string(model->size()))
                : arguments.subject.size)
      << " on " << topology.name() << ", " << topology.host_count() << " workers\n\n"
      << table_of(rows)
      << "\npredicted: fluid model, mean over a period; rho: what a period leaves of a "
         "disagreement;\nto consensus: iterations until 1 % is left; iteration: with computing, "
         "if there is a --model\n\n"
      << verdict.reason << '\n';
  for (const Row& row : rows) {
    if (row.schedule) std::cout << '\n' << row.strategy << '\n' << schedule_text(*row.schedule);
  }
  return 0;
}

}  // namespace

void add_plan_mixing(CLI::App& plan) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app =
      *plan.add_subcommand("mixing", "strategies side by side, and the best: time and agreement");
  arguments->subject.add_to(app);
  app.get_option("--size")->required(false)->description(
      "of what is exchanged; 100MB if not given");
  app.add_option("--model", arguments->model,
                 "a layer table (docs/model-format.md): its size, and iterations with computing");
  app.add_option("--agree-within", arguments->agree_within,
                 "iterations within which workers must agree to be chosen");
  app.add_option(
      "--strategy", arguments->strategies,
      "only these: a scheme of plans, gossip, local-sgd, asp, ssp or ds-sync:key=value,…");
  app.add_option(
         "--slow", arguments->slow,
         "regions and hosts whose links are slow; the DS-Sync of the default strategies goes "
         "round them, one named by --strategy is told by slow=")
      ->delimiter(',');
  app.add_option("--slow-factor", arguments->slow_factor, "how many times slower they are");
  app.add_option("--seed", arguments->seed,
                 "of the shuffling of the default strategies' DS-Sync (1)");
  app.add_flag("--schedule", arguments->schedule, "print DS-Sync's groups too");
  app.add_flag("--json", arguments->json, "print a JSON array, one object a strategy");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
