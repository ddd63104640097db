// The `thalweg` program. Every subcommand has its own file; this one puts them together.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include <thalweg/version.h>

#include "cli/command.h"
#include "cli/commands.h"

namespace {

int cannot_write() {
  std::cerr << "thalweg: cannot write to standard output\n";
  return thalweg::cli::kExitBadInput;
}

// Puts the commands of the help under headings, by what a user wants to do.
void group_commands(CLI::App& app) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> groups{
      {"Explore networks", {"plan", "sim", "testbed", "reproduce", "tune"}},
      {"Run jobs", {"run", "switch", "job", "ps"}},
      {"Measure and watch", {"bench", "probe", "top", "trace"}},
      {"This program", {"man", "completion"}}};
  for (const auto& [heading, names] : groups) {
    for (const char* name : names) app.get_subcommand(name)->group(heading);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Thalweg: gradients by the fastest line", "thalweg");
  thalweg::cli::make_headings_bold(app);
  app.set_version_flag("--version", thalweg::kVersion);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");
  thalweg::cli::add_examples(
      app,
      {"thalweg plan compare --topology two-racks --size 97MB    how long each scheme takes",
       "thalweg sim run two-jobs --plot two-jobs.svg             a scenario, packet by packet",
       "thalweg run -n 4 -- python3 train.py                     a job on this host",
       "thalweg bench allreduce --ranks 2 --against gloo         beside another library",
       "thalweg plan show --help                                 any command explains itself"});

  CLI::App& plan = *app.add_subcommand("plan", "collectives as plans: proved, counted, predicted");
  plan.require_subcommand(1);
  thalweg::cli::add_plan_show(plan);
  thalweg::cli::add_plan_compare(plan);
  thalweg::cli::add_plan_best(plan);
  thalweg::cli::add_plan_verify(plan);
  thalweg::cli::add_plan_schemes(plan);
  thalweg::cli::add_plan_mixing(plan);

  CLI::App& sim = *app.add_subcommand("sim", "the packet-level simulator");
  sim.require_subcommand(1);
  thalweg::cli::add_sim_run(sim);

  thalweg::cli::add_reproduce(app);
  thalweg::cli::add_probe(app);
  thalweg::cli::add_switch(app);
  thalweg::cli::add_job(app);
  thalweg::cli::add_ps(app);
  thalweg::cli::add_top(app);
  const std::vector<std::string> command = thalweg::cli::take_rank_command(argc, argv);
  const bool as_json = thalweg::cli::wants_json(argc, argv);
  thalweg::cli::add_run(app, command);

  CLI::App& testbed = *app.add_subcommand("testbed", "a network of this machine's own");
  testbed.require_subcommand(1);
  thalweg::cli::add_testbed_up(testbed);
  thalweg::cli::add_testbed_control(testbed);
  thalweg::cli::add_testbed_run(testbed, command);

  CLI::App& bench = *app.add_subcommand("bench", "measure, with the peer and the limit beside");
  bench.require_subcommand(1);
  thalweg::cli::add_bench_allreduce(bench);
  thalweg::cli::add_bench_allreduce_rank(bench);
  thalweg::cli::add_bench_gpu(bench);
  thalweg::cli::add_bench_kernels(bench);
  thalweg::cli::add_bench_sim(bench);
  thalweg::cli::add_bench_step(bench);
  thalweg::cli::add_bench_switch(bench);
  thalweg::cli::add_bench_transport(bench);

  CLI::App& tune = *app.add_subcommand("tune", "settings from a model and a network");
  tune.require_subcommand(1);
  thalweg::cli::add_tune_bound(tune);
  thalweg::cli::add_tune_thresholds(tune);

  CLI::App& trace = *app.add_subcommand("trace", "recordings of connections, timelines of jobs");
  trace.require_subcommand(1);
  thalweg::cli::add_trace_chakra(trace);
  thalweg::cli::add_trace_merge(trace);
  thalweg::cli::add_trace_replay(trace);

  thalweg::cli::add_manual(app);
  group_commands(app);

  try {
    app.parse(argc, argv);
  } catch (const thalweg::cli::Failure& failure) {
    return thalweg::cli::report(failure.error, as_json);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    // Help and the version end the program in the same way.
    if (error.get_exit_code() == 0) return app.exit(error);
    return thalweg::cli::report(thalweg::cli::explain(app, error), as_json);
  } catch (const std::system_error& error) {
    // fmt::print() throws if it cannot write.
    if (std::ferror(stdout) != 0) return cannot_write();
    std::cerr << "thalweg: " << error.what() << '\n';
    return thalweg::cli::kExitBadInput;
  }
  // A full disk or a closed pipe must not look like success.
  std::cout.flush();
  return std::cout && std::fflush(stdout) == 0 ? 0 : cannot_write();
}
