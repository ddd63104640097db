#include "lab/figures/convergence.h"

#include <algorithm>

#include "lab/python_script.h"
#include "sync/strategy.h"

namespace thalweg::lab {
namespace {

constexpr std::chrono::milliseconds kTrainingLimit{3'600'000};

sim::Json period_json(const sync::Schedule& schedule) {
  sim::Json period = sim::Json::array();
  for (const sync::Grouping& groups : schedule.period) {
    sim::Json& at = period.emplace_back(sim::Json::array());
    for (const sync::Group& group : groups) {
      sim::Json& members = at.emplace_back(sim::Json::array());
      for (const Rank worker : group) members.push_back(worker.value());
    }
  }
  return period;
}

// The part of the script's request for one point: the strategy of the point's first job, and how
// fast that is.
Result<sim::Json> request_of(const sim::Scenario& scenario, const sim::Json& result) {
  if (scenario.jobs.empty()) return Error("'training': the scenario has no job that could train");
  const sim::ScenarioJob& job = scenario.jobs.front();
  THALWEG_TRY(const sync::Strategy strategy,
              sync::Strategy::make(job.training.scheme, *job.topology));
  const sim::Json& measured = result["jobs"][0];
  sim::Json point{{"workers", job.topology->host_count()},
                  {"pace_ms", measured["pace_ms"]},
                  {"worker_pace_ms", measured["worker_pace_ms"]}};
  if (strategy.servers()) {
    point["servers"] = true;
    const std::optional<int> staleness = strategy.servers()->staleness;
    point["staleness"] = staleness ? sim::Json(*staleness) : sim::Json();
  } else if (strategy.schedule()) {
    point["period"] = period_json(*strategy.schedule());
    // Averaging of weights is a part of DS-Sync if the workers' models always differ.
    point["swa"] = strategy.mixing().rho > 0;
  } else if (strategy.in_parts()) {
    point["gossip"] = true;
  }
  return point;
}

bool is_base(const sim::ExperimentTraining& training, const sim::ExperimentResult& result,
             const sim::SweepPoint& point) {
  return std::ranges::all_of(training.base, [&](const auto& entry) {
    const auto axis = std::ranges::find(result.axes, entry.first, &sim::Axis::name);
    return point.labels[static_cast<std::size_t>(axis - result.axes.begin())] == entry.second;
  });
}

}  // namespace

Status join_training(const sim::ExperimentTraining& training, bool quick, const Sweep& sweep,
                     sim::ExperimentResult& result) {
  sim::Json request{{"seeds", quick ? training.quick_seeds : training.seeds},
                    {"iterations", training.iterations},
                    {"base", nullptr},
                    {"points", sim::Json::array()}};
  std::vector<std::size_t> asked;
  for (std::size_t p = 0; p < result.points.size(); ++p) {
    if (!finished(result.results[p])) continue;
    THALWEG_TRY(const sim::Scenario scenario, sweep.read_point(p));
    THALWEG_TRY(sim::Json point, request_of(scenario, result.results[p]));
    if (is_base(training, result, result.points[p])) request["base"] = asked.size();
    asked.push_back(p);
    request["points"].push_back(std::move(point));
  }
  if (request["base"].is_null()) return ok_status();
  THALWEG_TRY(const std::string output, run_python_script({.name = "train_strategies.py",
                                                           .input = request.dump(),
                                                           .limit = kTrainingLimit,
                                                           .doing = "cannot train"}));
  const sim::Json answers = sim::Json::parse(output, nullptr, false);
  if (!answers.is_array() || answers.size() != asked.size()) {
    return Error("cannot train: train_strategies.py answered something else than a result a point");
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    result.results[asked[i]]["training"] = answers[i];
  }
  return ok_status();
}

}  // namespace thalweg::lab
