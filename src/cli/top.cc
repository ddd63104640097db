#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/observe/rank_metrics.h"
#include "net/job/environment.h"
#include "net/job/metrics.h"

namespace thalweg::cli {
namespace {

struct TopArguments {
  std::vector<std::string> places = {"127.0.0.1:9464"};
  double interval_s = 2;
  bool once = false;
  bool json = false;
  std::string key_file;
  bool print_token = false;
};

// What readers of the job's metrics send; empty: the job has no key.
Result<std::string> token_of(const TopArguments& arguments) {
  THALWEG_TRY(const std::optional<wire::JobKey> key,
              net::job_key_given(net::process_environment(), arguments.key_file));
  return key ? net::metrics_token(*key) : std::string();
}

Result<int> run_top(const TopArguments& arguments) {
  if (!(arguments.interval_s > 0)) {
    return Error(fmt::format("--interval: {}; it must be above 0", arguments.interval_s));
  }
  THALWEG_TRY(const std::string token, token_of(arguments));
  if (arguments.print_token) {
    if (token.empty()) {
      return Error("--print-token: needs a key (--key-file or THALWEG_KEY_FILE)");
    }
    std::cout << token << '\n';
    return 0;
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::vector<lab::RankMetrics> before;
  while (true) {
    std::vector<lab::RankMetrics> metrics;
    for (const std::string& place : arguments.places) {
      metrics.push_back(lab::read_rank_metrics(place, token));
    }
    if (terminal && !arguments.once) std::cout << "\x1b[H\x1b[2J";
    if (arguments.json) {
      // In ASCII, because the names come from whatever answers at these places.
      std::cout << lab::metrics_json(arguments.places, metrics)
                       .dump(arguments.once ? 1 : -1, ' ', true,
                             nlohmann::json::error_handler_t::replace)
                << '\n';
    } else {
      std::cout << lab::metrics_table(arguments.places, metrics, before);
    }
    std::cout << std::flush;
    if (arguments.once || !std::cout) {
      const bool any = std::ranges::any_of(
          metrics, [](const lab::RankMetrics& one) { return one.error.empty(); });
      return any ? 0 : kExitNo;
    }
    before = std::move(metrics);
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval_s));
  }
}

}  // namespace

void add_top(CLI::App& app) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App& command = *app.add_subcommand(
      "top",
      "what ranks are doing, from their metrics (THALWEG_METRICS); exit code 1 if none answers");
  command.add_option("places", arguments->places, "host:port of one or more ranks")
      ->capture_default_str();
  command.add_option("--interval", arguments->interval_s, "seconds between looks")
      ->capture_default_str();
  command.add_flag("--once", arguments->once, "look once: counts since the start");
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_option("--key-file", arguments->key_file,
                     "file with the job key, or 'none'; otherwise THALWEG_KEY_FILE names it");
  command.add_flag("--print-token", arguments->print_token,
                   "print the token that Prometheus needs for a job with a key, and end");
  add_examples(command, {"thalweg top --print-token --key-file /run/job.key",
                         "thalweg top node1:9464 node2:9464", "thalweg top --once --json"});
  on_run(command, [arguments] { return run_top(*arguments); });
}

}  // namespace thalweg::cli
