#include "lab/bench/step/rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include <thalweg/communicator.h>

#include "lab/bench/step/player.h"
#include "lab/terminal.h"
#include "net/job/environment.h"

namespace thalweg::lab::step {
namespace {

// Steps before the timed ones of a turn. The first turn makes connections and plans. Later ones
// find congestion windows that have shrunk while other libraries had their turns.
constexpr int kFirstWarmUp = 3;
constexpr int kWarmUp = 1;

Status check_job(const net::Environment& job, const Settings& settings) {
  if (job.size < 2) {
    return Error(
        "bench step: there is one process and no network: give --testbed TOPOLOGY, or start it on "
        "several hosts, as in thalweg run --hosts a,b -- thalweg bench step --model resnet18");
  }
  if (settings.topology && job.size != settings.topology->host_count()) {
    return Error(fmt::format(
        "--topology: {} hosts, and the launcher started {} ranks; each host has one rank",
        settings.topology->host_count(), job.size));
  }
  return ok_status();
}

Result<std::vector<std::unique_ptr<Player>>> meet(const Settings& settings, Progress& progress) {
  std::vector<std::unique_ptr<Player>> players(settings.libraries.size());
  for (std::size_t i = 0; i < players.size(); ++i) {
    const Library& library = settings.libraries[i];
    progress.show("starting " + library.name);
    THALWEG_TRY(players[i],
                library.gloo ? make_gloo_player(settings) : make_own_player(library, settings));
  }
  return players;
}

// The times of each step of the slowest rank, and the sum of the wrong elements.
Status combine(const Communicator& all, std::vector<double>& steps_ms, std::int64_t& wrong) {
  THALWEG_TRY_STATUS(all.allreduce(TensorSpan::of(steps_ms), {.op = ReduceOp::kMax}));
  return all.allreduce(TensorSpan{&wrong, 1, DType::kInt64}, {.op = ReduceOp::kSum});
}

}  // namespace

Result<RankResult> play_as_rank(const Options& options, const Settings& settings) {
  THALWEG_TRY(const net::Environment job, net::environment_from(net::process_environment()));
  THALWEG_TRY_STATUS(check_job(job, settings));
  Progress progress;
  // Gloo's processes come first: they take the longest to start, and are started before there are
  // threads. The peers are the first libraries.
  THALWEG_TRY(const std::vector<std::unique_ptr<Player>> players, meet(settings, progress));
  THALWEG_TRY(const Communicator all,
              Communicator::create({.group = "step", .shared_memory = false}));
  const std::size_t count = players.size();
  std::vector<std::vector<double>> steps_ms(count);
  std::vector<std::int64_t> wrong(count);
  const std::chrono::nanoseconds patience(settings.timeout.ps() / 1000);
  for (int done = 0, round = 0; done < options.steps; done += kStepsATurn, ++round) {
    const int timed = std::min(kStepsATurn, options.steps - done);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t who = (i + static_cast<std::size_t>(round)) % count;
      const std::string& name = settings.libraries[who].name;
      if (job.rank == 0) {
        const double part = static_cast<double>(i) / static_cast<double>(count);
        progress.show(fmt::format("step {} of {} with {}", done + 1, options.steps, name),
                      (done + part * timed) / options.steps);
      }
      THALWEG_TRY_STATUS(all.barrier({.deadline = patience}));
      const Result<Turn> turn = players[who]->play(round == 0 ? kFirstWarmUp : kWarmUp, timed);
      if (!turn.ok()) return turn.error().within(fmt::format("rank {}, {}", job.rank, name));
      steps_ms[who].insert(steps_ms[who].end(), turn->steps_ms.begin(), turn->steps_ms.end());
      wrong[who] += turn->wrong;
    }
  }
  RankResult result{.rank = job.rank, .ranks = job.size, .measured = {}};
  for (std::size_t i = 0; i < count; ++i) {
    THALWEG_TRY_STATUS(combine(all, steps_ms[i], wrong[i]));
    if (job.rank != 0) continue;
    result.measured.push_back({.library = settings.libraries[i],
                               .version = players[i]->version(),
                               .steps_ms = std::move(steps_ms[i]),
                               .wrong = wrong[i],
                               .choices = players[i]->choices()});
  }
  return result;
}

}  // namespace thalweg::lab::step
