// The `thalweg` program. One file a subcommand; this one only puts them together.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <system_error>

#include <thalweg/version.h>

#include "cli/bench_allreduce.h"
#include "cli/bench_kernels.h"
#include "cli/bench_sim.h"
#include "cli/bench_switch.h"
#include "cli/bench_transport.h"
#include "cli/command.h"
#include "cli/job.h"
#include "cli/manual.h"
#include "cli/plan.h"
#include "cli/probe.h"
#include "cli/ps.h"
#include "cli/reproduce.h"
#include "cli/run.h"
#include "cli/sim_run.h"
#include "cli/switch.h"
#include "cli/testbed.h"
#include "cli/top.h"
#include "cli/trace_replay.h"
#include "cli/tune_bound.h"
#include "cli/tune_thresholds.h"

namespace {

int cannot_write() {
  std::cerr << "thalweg: cannot write to standard output\n";
  return thalweg::kExitBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Thalweg: gradients by the fastest line", "thalweg");
  app.set_version_flag("--version", thalweg::kVersion);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");

  CLI::App& plan = *app.add_subcommand("plan", "collectives as plans: proved, counted, predicted");
  plan.require_subcommand(1);
  thalweg::add_plan_show(plan);
  thalweg::add_plan_compare(plan);
  thalweg::add_plan_best(plan);
  thalweg::add_plan_verify(plan);
  thalweg::add_plan_schemes(plan);
  thalweg::add_plan_mixing(plan);

  CLI::App& sim = *app.add_subcommand("sim", "the packet-level simulator");
  sim.require_subcommand(1);
  thalweg::add_sim_run(sim);

  thalweg::add_reproduce(app);
  thalweg::add_probe(app);
  thalweg::add_switch(app);
  thalweg::add_job(app);
  thalweg::add_ps(app);
  thalweg::add_top(app);
  const std::vector<std::string> command = thalweg::take_rank_command(argc, argv);
  thalweg::add_run(app, command);

  CLI::App& testbed = *app.add_subcommand("testbed", "a network of this machine's own");
  testbed.require_subcommand(1);
  thalweg::add_testbed_up(testbed);
  thalweg::add_testbed_control(testbed);
  thalweg::add_testbed_run(testbed, command);

  CLI::App& bench = *app.add_subcommand("bench", "measure, with the peer and the limit beside");
  bench.require_subcommand(1);
  thalweg::add_bench_allreduce(bench);
  thalweg::add_bench_allreduce_rank(bench);
  thalweg::add_bench_kernels(bench);
  thalweg::add_bench_sim(bench);
  thalweg::add_bench_switch(bench);
  thalweg::add_bench_transport(bench);

  CLI::App& tune = *app.add_subcommand("tune", "settings from a model and a network");
  tune.require_subcommand(1);
  thalweg::add_tune_bound(tune);
  thalweg::add_tune_thresholds(tune);

  CLI::App& trace = *app.add_subcommand("trace", "recordings of real connections");
  trace.require_subcommand(1);
  thalweg::add_trace_replay(trace);

  thalweg::add_manual(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
      if (const auto missing = thalweg::missing_subcommand(app)) {
        std::cerr << missing->message() << '\n';
        return thalweg::kExitBadInput;
      }
    }
    return app.exit(error) == 0 ? 0 : thalweg::kExitBadInput;
  } catch (const std::system_error& error) {
    // Of fmt::print.
    if (std::ferror(stdout) != 0) return cannot_write();
    std::cerr << "thalweg: " << error.what() << '\n';
    return thalweg::kExitBadInput;
  }
  // A full disk or a closed pipe must not look like success.
  std::cout.flush();
  return std::cout && std::fflush(stdout) == 0 ? 0 : cannot_write();
}
