#include "cli/convergence.h"

#include <algorithm>

#include "cli/python_script.h"
#include "sync/strategy.h"

namespace thalweg {
namespace {

constexpr std::chrono::milliseconds kTrainingLimit{3'600'000};

Json period_json(const Schedule& schedule) {
  Json period = Json::array();
  for (const Grouping& groups : schedule.period) {
    Json& at = period.emplace_back(Json::array());
    for (const Group& group : groups) {
      Json& members = at.emplace_back(Json::array());
      for (const Rank worker : group) members.push_back(worker.value());
    }
  }
  return period;
}

// A point of the script's request: the strategy of its first job, and how fast that is.
Result<Json> request_of(const Scenario& scenario, const Json& result) {
  if (scenario.jobs.empty()) return Error("'training': the scenario has no job that could train");
  const ScenarioJob& job = scenario.jobs.front();
  THALWEG_TRY(const Strategy strategy, Strategy::make(job.training.scheme, *job.topology));
  const Json& measured = result["jobs"][0];
  Json point{{"workers", job.topology->host_count()},
             {"pace_ms", measured["pace_ms"]},
             {"worker_pace_ms", measured["worker_pace_ms"]}};
  if (strategy.servers()) {
    point["servers"] = true;
    const std::optional<int> staleness = strategy.servers()->staleness;
    point["staleness"] = staleness ? Json(*staleness) : Json();
  } else if (strategy.schedule()) {
    point["period"] = period_json(*strategy.schedule());
    // Weight averages are a part of DS-Sync, where models differ at all times.
    point["swa"] = strategy.mixing().rho > 0;
  } else if (strategy.in_parts()) {
    point["gossip"] = true;
  }
  return point;
}

bool is_base(const ExperimentTraining& training, const ExperimentResult& result,
             const SweepPoint& point) {
  return std::ranges::all_of(training.base, [&](const auto& entry) {
    const auto axis = std::ranges::find(result.axes, entry.first, &Axis::name);
    return point.labels[static_cast<std::size_t>(axis - result.axes.begin())] == entry.second;
  });
}

}  // namespace

Status join_training(const ExperimentTraining& training, bool quick, const Sweep& sweep,
                     ExperimentResult& result) {
  Json request{{"seeds", quick ? training.quick_seeds : training.seeds},
               {"iterations", training.iterations},
               {"base", nullptr},
               {"points", Json::array()}};
  std::vector<std::size_t> asked;
  for (std::size_t p = 0; p < result.points.size(); ++p) {
    if (!finished(result.results[p])) continue;
    THALWEG_TRY(const Scenario scenario, sweep.read_point(p));
    THALWEG_TRY(Json point, request_of(scenario, result.results[p]));
    if (is_base(training, result, result.points[p])) request["base"] = asked.size();
    asked.push_back(p);
    request["points"].push_back(std::move(point));
  }
  if (request["base"].is_null()) return ok_status();
  THALWEG_TRY(const std::string output, run_python_script({.name = "convergence.py",
                                                           .input = request.dump(),
                                                           .limit = kTrainingLimit,
                                                           .doing = "cannot train"}));
  const Json answers = Json::parse(output, nullptr, false);
  if (!answers.is_array() || answers.size() != asked.size()) {
    return Error("cannot train: convergence.py answered something else than a result a point");
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    result.results[asked[i]]["training"] = answers[i];
  }
  return ok_status();
}

}  // namespace thalweg
