#include "lab/bench/step/bench.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lab/bench/step/own_testbed.h"
#include "lab/bench/step/rank.h"
#include "lab/bench/step/report.h"
#include "lab/files.h"
#include "lab/testbed/control.h"
#include "launch/spawn.h"
#include "launch/supervisor.h"

namespace thalweg::lab::step {
namespace {

constexpr int kSignalCodes = 128;  // added to the number of the signal that ended a process

// The links of hosts lose half of what is asked for, because a packet between two hosts passes two
// of them.
Status set_loss(const OwnTestbed& testbed, const Settings& settings) {
  if (settings.loss == 0) return ok_status();
  const topology::Topology& topology = *settings.topology;
  for (const topology::Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    const std::string name =
        fmt::format("{}-{}", topology.node(link.a).name, topology.node(link.b).name);
    THALWEG_TRY_STATUS(
        set_testbed_link(testbed.name(), name, {fmt::format("loss={:.9f}", settings.loss / 2)}));
  }
  return ok_status();
}

// Hosts stall from now on.
Status set_stalls(const OwnTestbed& testbed, const Options& options) {
  if (options.stall_every.empty()) return ok_status();
  return stall_testbed(testbed.name(), {.every = options.stall_every,
                                        .length = options.stall_for,
                                        .seed = static_cast<std::uint64_t>(options.seed)});
}

Result<Outcome> reported(const Options& options, const Settings& settings,
                         std::vector<Measured> measured) {
  THALWEG_TRY(const Report report, report_of(options, settings, std::move(measured)));
  return Outcome{.text = options.json ? to_json(report).dump(2) + "\n" : to_text(report),
                 .exit_code = report.wrong() == 0 ? 0 : 1};
}

// What became of the ranks of a testbed.
struct RanksEnd {
  int exit_code = 0;
  std::vector<Measured> measured;  // if the exit code is 0
};

// Waits until the process has ended, and passes the signals that should end this process on to it.
// Returns its exit code, or 128 + the signal that ended it. `signals` are blocked.
int wait_for(pid_t process, const sigset_t& signals) {
  for (;;) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal > 0 && signal != SIGCHLD) kill(process, signal);
    int status = 0;
    if (waitpid(process, &status, WNOHANG) != process) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalCodes + WTERMSIG(status);
  }
}

// Runs `thalweg testbed run` to its end and returns its exit code. It is a process of its own
// because it moves to a host, and what runs on a host ends with the testbed.
Result<int> run_command(const std::vector<std::string>& command) {
  sigset_t before;
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, &before);
  const Result<pid_t> process = launch::spawn({.command = command, .own_group = true});
  const int code = process.ok() ? wait_for(*process, ends) : 0;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (!process.ok()) return process.error();
  return code;
}

Result<RanksEnd> run_ranks(const Options& options, const Settings& settings) {
  TestbedUpOptions up{.topology = options.testbed,
                      .name = {},
                      .settings = {},
                      .aggregate = {},
                      .seed = static_cast<std::uint64_t>(options.seed)};
  up.aggregate = options.aggregate;
  Result<std::unique_ptr<OwnTestbed>> testbed = OwnTestbed::bring_up(std::move(up));
  if (!testbed.ok()) {
    const char* const hint = geteuid() == 0 ? "" : "; run it as root";
    return Error(fmt::format("--testbed: {}{}", testbed.error().message(), hint));
  }
  THALWEG_TRY_STATUS(set_loss(**testbed, settings));
  THALWEG_TRY_STATUS(set_stalls(**testbed, options));
  const std::string results = (*testbed)->file("results");
  const std::vector<std::string> rank = rank_words(options, results);
  std::vector<std::string> command = {rank.front(),
                                      "testbed",
                                      "run",
                                      "--name",
                                      (*testbed)->name(),
                                      "--hosts",
                                      fmt::format("0-{}", settings.ranks - 1),
                                      "--timeout",
                                      fmt::format("{:.0f}ms", settings.timeout.ms()),
                                      "--no-prefix",
                                      "--"};
  command.insert(command.end(), rank.begin(), rank.end());
  RanksEnd end;
  THALWEG_TRY(end.exit_code, run_command(command));
  if (end.exit_code != 0) return end;
  THALWEG_TRY(const std::string text, read_file(results));
  THALWEG_TRY(end.measured, measured_from_text(text));
  return end;
}

Result<Outcome> run_on_own_testbed(const Options& options, const Settings& settings) {
  THALWEG_TRY(RanksEnd end, run_ranks(options, settings));
  if (end.exit_code == launch::kExitTimeout) {
    return Error(fmt::format("the steps took longer than {}: --timeout allows more",
                             to_string(settings.timeout)));
  }
  if (end.exit_code > kSignalCodes) return Outcome{.text = {}, .exit_code = end.exit_code};
  if (end.exit_code != 0) return Error("a rank has failed; it printed why");
  return reported(options, settings, std::move(end.measured));
}

}  // namespace

Result<Outcome> run(const Options& options) {
  THALWEG_TRY(Settings settings, settings_of(options));
  if (!options.testbed.empty()) return run_on_own_testbed(options, settings);
  THALWEG_TRY(RankResult result, play_as_rank(options, settings));
  if (result.rank != 0) return Outcome{};
  if (!options.results.empty()) {
    THALWEG_TRY_STATUS(
        write_files({OutputFile{options.results, measured_to_text(result.measured)}}));
    return Outcome{};
  }
  settings.ranks = result.ranks;
  return reported(options, settings, std::move(result.measured));
}

}  // namespace thalweg::lab::step
