#include <fmt/core.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/observe/switch_jobs.h"

namespace thalweg::cli {
namespace {

using nlohmann::json;

struct JobArguments {
  lab::SwitchControl control;
  std::string key_file;
  bool as_json = false;
  net::JobRequest request;
  std::uint32_t job = 0;
};

// Names come from other clients of the switch. In ASCII they are text, whatever a terminal obeys.
std::string ascii_json(const json& answer) { return answer.dump(2, ' ', true) + "\n"; }

Result<int> create(const JobArguments& arguments) {
  THALWEG_TRY(const net::JobGrant grant,
              lab::create_switch_job(arguments.control, arguments.request));
  std::cout << (arguments.as_json ? ascii_json(net::to_json(grant)) : lab::job_grant_text(grant));
  return 0;
}

Result<int> job_list(const JobArguments& arguments) {
  THALWEG_TRY(const json answer, lab::list_switch_jobs(arguments.control));
  std::cout << (arguments.as_json ? ascii_json(answer) : lab::switch_jobs_text(answer));
  return 0;
}

Result<int> remove(const JobArguments& arguments) {
  THALWEG_TRY_STATUS(lab::remove_switch_job(arguments.control, arguments.job));
  return 0;
}

Result<int> job_stats(const JobArguments& arguments) {
  THALWEG_TRY(const json answer, lab::switch_job_stats(arguments.control, arguments.job));
  std::cout << (arguments.as_json ? ascii_json(answer) : lab::switch_stats_text(answer));
  return 0;
}

}  // namespace

void add_job(CLI::App& app) {
  CLI::App& group = *app.add_subcommand("job", "the jobs that share a switch");
  group.require_subcommand(1);
  auto arguments = std::make_shared<JobArguments>();
  const auto add = [&](const char* name, const char* help, const char* example,
                       Result<int> (*run)(const JobArguments&)) {
    CLI::App& command = *group.add_subcommand(name, help);
    command
        .add_option("--switch", arguments->control.address,
                    "host:port of the switch's control socket")
        ->envname("THALWEG_SWITCH")
        ->required();
    command
        .add_option("--token", arguments->control.secrets.token,
                    "the switch's secret, if it has one")
        ->envname("THALWEG_SWITCH_TOKEN");
    command.add_option(
        "--key-file", arguments->key_file,
        "file with the switch's key, or 'none'; otherwise THALWEG_SWITCH_KEY_FILE or "
        "THALWEG_KEY_FILE names it");
    command.add_option("--timeout", arguments->control.timeout_s, "seconds to wait for the switch")
        ->check(CLI::Range(0.001, 3600.0))
        ->capture_default_str();
    add_examples(command, {fmt::format("thalweg job {} --switch 127.0.0.1:7700{}", name, example)});
    on_run(command, [arguments, run]() -> Result<int> {
      // The process that answers may be no switch.
      try {
        THALWEG_TRY(arguments->control.secrets.key,
                    net::switch_key_from(net::process_environment(), arguments->key_file));
        return run(*arguments);
      } catch (const json::exception& odd) {
        return Error(fmt::format("the switch at {}: its answer makes no sense: {}",
                                 arguments->control.address, odd.what()));
      }
    });
    return &command;
  };
  CLI::App* made = add("create", "Let a job in: its identifier, key and where to send",
                       " --workers 10.0.0.1:6000,10.0.0.2:6000 --servers 10.0.0.3:6000", create);
  made->add_option("--name", arguments->request.name, "name for people to read");
  made->add_option("--workers", arguments->request.workers, "host:port of each, in order")
      ->required()
      ->delimiter(',');
  made->add_option("--servers", arguments->request.servers, "host:port of each, in order")
      ->required()
      ->delimiter(',');
  made->add_option("--limit", arguments->request.limit,
                   "aggregators that it may hold at a time; 0: as many as are free");
  made->add_option("--job", arguments->request.id,
                   "the number that another switch of the job has given it; 0: any");
  made->add_option("--groups", arguments->request.groups,
                   "bits of the groups of workers whose first switch this is")
      ->capture_default_str();
  made->add_flag("--second-level", arguments->request.second_level,
                 "this is the servers' switch, where sums of groups meet");
  made->add_flag("--keyed", arguments->request.keyed, "packets carry a tag by a key");
  CLI::App* listed = add("list", "The jobs there are", " --json", job_list);
  CLI::App* removed = add("remove", "End a job", " 2", remove);
  removed->add_option("job", arguments->job, "identifier of the job")->required();
  CLI::App* counted = add("stats", "What the switch did, by job and port", "", job_stats);
  counted->add_option("job", arguments->job, "only this job");
  for (CLI::App* command : {made, listed, counted}) {
    command->add_flag("--json", arguments->as_json, "print a JSON object");
  }
}

}  // namespace thalweg::cli
