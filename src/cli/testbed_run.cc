#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/testbed/run.h"

namespace thalweg::cli {
namespace {

Result<int> run_testbed_run(const lab::TestbedRunOptions& options,
                            const std::vector<std::string>& command) {
  if (command.empty()) {
    return Error("testbed run: no program is named: thalweg testbed run --hosts 0-3 -- program …");
  }
  return lab::run_on_testbed(options, command);
}

Result<int> exec(const lab::TestbedRunOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    return Error("testbed exec: no program is named: thalweg testbed exec 3 -- program …");
  }
  THALWEG_TRY_STATUS(lab::exec_on_testbed(options.name, options.hosts, command));
  return 0;
}

}  // namespace

void add_testbed_run(CLI::App& testbed, const std::vector<std::string>& command) {
  auto options = std::make_shared<lab::TestbedRunOptions>();
  CLI::App& started = *testbed.add_subcommand(
      "run", "start a job, a rank a host: thalweg testbed run --hosts 0-3 -- program …");
  add_testbed_name(started, options->name);
  started.add_option("--hosts", options->hosts, "as 0-3,6 (all)");
  started.add_option("-x,--env", options->variables, "NAME or NAME=value, for all ranks")
      ->allow_extra_args(false);
  started.add_option("--timeout", options->timeout, "end the job after this long, as in 600s");
  started.add_option("--grace", options->grace, "between asking ranks to end and killing them")
      ->capture_default_str();
  started.add_flag("--no-prefix", options->no_prefix, "do not put [rank] before lines of output");
  started.add_flag("--keep-going", options->keep_going,
                   "a rank that fails does not end the others");
  add_examples(started, {"thalweg testbed run --hosts 0-3 -- python3 train.py"});
  on_run(started, [options, command] { return run_testbed_run(*options, command); });
  CLI::App& one = *testbed.add_subcommand(
      "exec", "run a program on a host: thalweg testbed exec 3 -- iperf3 -s");
  add_testbed_name(one, options->name);
  one.add_option("host", options->hosts, "its number or name")->required();
  add_examples(one, {"thalweg testbed exec 3 -- ping -c 3 10.0.0.1"});
  on_run(one, [options, command] { return exec(*options, command); });
}

}  // namespace thalweg::cli
