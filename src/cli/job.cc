#include "cli/job.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "net/address.h"
#include "net/atp/switch_client.h"
#include "net/system.h"

namespace thalweg {
namespace {

using nlohmann::json;

struct Arguments {
  std::string address;
  std::string token;
  double timeout_s = 5;
  bool as_json = false;
  JobRequest request;
  std::uint32_t job = 0;
};

Result<json> ask(const Arguments& arguments, json request) {
  const Time until = monotonic_now() + Duration::seconds(arguments.timeout_s);
  THALWEG_TRY(SwitchClient client,
              SwitchClient::connect(arguments.address, arguments.token, until));
  return client.ask(std::move(request), until);
}

// A switch takes numbers alone: it does not wait for names.
Status look_up(std::vector<std::string>& ends, const char* field) {
  for (std::string& end : ends) {
    const Result<SocketAddress> address = SocketAddress::resolve(end);
    if (!address.ok()) return address.error().within(field);
    end = address->to_string();
  }
  return ok_status();
}

Result<int> create(const Arguments& arguments) {
  JobRequest wanted = arguments.request;
  THALWEG_TRY_STATUS(look_up(wanted.workers, "--workers"));
  THALWEG_TRY_STATUS(look_up(wanted.servers, "--servers"));
  json request = to_json(wanted);
  request["op"] = "create";
  THALWEG_TRY(const json answer, ask(arguments, std::move(request)));
  THALWEG_TRY(const JobGrant grant, job_grant_from(answer));
  if (arguments.as_json) {
    std::cout << to_json(grant).dump(2) << '\n';
    return 0;
  }
  std::cout << fmt::format("job {}\n", grant.id);
  if (!grant.key.empty()) std::cout << fmt::format("key {}\n", grant.key);
  for (const std::string& address : grant.data) std::cout << fmt::format("data {}\n", address);
  return 0;
}

Result<int> list(const Arguments& arguments) {
  THALWEG_TRY(const json answer, ask(arguments, {{"op", "list"}}));
  if (arguments.as_json) {
    std::cout << answer.dump(2) << '\n';
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"job", "name", "workers", "servers", "limit"}};
  for (const json& job : answer.value("jobs", json::array())) {
    const auto limit = job.value("limit", 0U);
    rows.push_back({fmt::format("{}", job.value("job", 0U)), job.value("name", ""),
                    fmt::format("{}", job.value("workers", json::array()).size()),
                    fmt::format("{}", job.value("servers", json::array()).size()),
                    limit == 0 ? "none" : fmt::format("{}", limit)});
  }
  std::cout << format_table(rows);
  return 0;
}

Result<int> remove(const Arguments& arguments) {
  THALWEG_TRY([[maybe_unused]] const json answer,
              ask(arguments, {{"op", "remove"}, {"job", arguments.job}}));
  return 0;
}

Result<int> stats(const Arguments& arguments) {
  json request{{"op", "stats"}};
  if (arguments.job != 0) request["job"] = arguments.job;
  THALWEG_TRY(const json answer, ask(arguments, std::move(request)));
  if (arguments.as_json) {
    std::cout << answer.dump(2) << '\n';
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"of", "counter", "count"}};
  const auto add = [&](const std::string& of, const json& counters) {
    for (const auto& [name, count] : counters.items()) {
      if (count.is_number()) rows.push_back({of, name, count.dump()});
    }
  };
  for (const json& job : answer.value("jobs", json::array())) {
    const std::string name = fmt::format("job {}", job.value("job", 0U));
    add(name, job.value("counters", json::object()));
    for (const json& port : job.value("ports", json::array())) {
      add(fmt::format("{} {}", name, port.value("address", "")), port);
    }
  }
  add("switch", answer.value("switch", json::object()));
  std::cout << format_table(rows);
  return 0;
}

}  // namespace

void add_job(CLI::App& app) {
  CLI::App& group = *app.add_subcommand("job", "the jobs that share a switch");
  group.require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* name, const char* help, Result<int> (*run)(const Arguments&)) {
    CLI::App& command = *group.add_subcommand(name, help);
    command.add_option("--switch", arguments->address, "host:port of the switch's control socket")
        ->envname("THALWEG_SWITCH")
        ->required();
    command.add_option("--token", arguments->token, "The switch's secret, if it has one")
        ->envname("THALWEG_SWITCH_TOKEN");
    command.add_option("--timeout", arguments->timeout_s, "Seconds to wait for the switch")
        ->check(CLI::Range(0.001, 3600.0))
        ->capture_default_str();
    on_run(command, [arguments, run]() -> Result<int> {
      // What answers may be no switch.
      try {
        return run(*arguments);
      } catch (const json::exception& odd) {
        return Error(fmt::format("the switch at {}: its answer makes no sense: {}",
                                 arguments->address, odd.what()));
      }
    });
    return &command;
  };
  CLI::App* made = add("create", "Let a job in: its identifier, key and where to send", create);
  made->add_option("--name", arguments->request.name, "For people");
  made->add_option("--workers", arguments->request.workers, "host:port of each, in order")
      ->required()
      ->delimiter(',');
  made->add_option("--servers", arguments->request.servers, "host:port of each, in order")
      ->required()
      ->delimiter(',');
  made->add_option("--limit", arguments->request.limit,
                   "Aggregators that it may hold at a time; 0: as many as are free");
  made->add_option("--job", arguments->request.id,
                   "The number that another switch of the job has given it; 0: any");
  made->add_option("--groups", arguments->request.groups,
                   "Bits of the groups of workers whose first switch this is")
      ->capture_default_str();
  made->add_flag("--second-level", arguments->request.second_level,
                 "This is the servers' switch, where sums of groups meet");
  made->add_flag("--keyed", arguments->request.keyed, "Packets carry a tag by a key");
  CLI::App* listed = add("list", "The jobs there are", list);
  CLI::App* removed = add("remove", "End a job", remove);
  removed->add_option("job", arguments->job, "Its identifier")->required();
  CLI::App* counted = add("stats", "What the switch did, by job and port", stats);
  counted->add_option("job", arguments->job, "Of this job only");
  for (CLI::App* command : {made, listed, counted}) {
    command->add_flag("--json", arguments->as_json, "As JSON");
  }
}

}  // namespace thalweg
