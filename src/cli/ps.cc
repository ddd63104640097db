#include "cli/commands.h"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "lab/console.h"
#include "launch/signals.h"
#include "net/atp/switch_secrets.h"
#include "net/io/small_file.h"
#include "net/job/environment.h"
#include "ps/config.h"
#include "ps/server.h"

namespace thalweg::cli {
namespace {

Result<int> run_ps(const std::string& path, const std::string& key_file) {
  THALWEG_TRY(const std::string text,
              net::read_small_file(path, "the configuration", net::kMaxConfigFile));
  THALWEG_TRY(ps::PsConfig config, ps::PsConfig::parse(text, path));
  const net::EnvironmentLookup environment = net::process_environment();
  THALWEG_TRY(config.key, net::job_key_given(environment, key_file));
  if (!config.switch_address.empty()) {
    THALWEG_TRY(config.switch_key, net::switch_key_from(environment));
    // Switches have the job key unless another is named, wherever the job key comes from.
    const bool named = !environment("THALWEG_SWITCH_KEY_FILE").value_or("").empty();
    if (config.key && !named) config.switch_key = config.key;
  }
  launch::EndSignals ends;
  THALWEG_TRY(const std::unique_ptr<ps::ParameterServer> server,
              ps::ParameterServer::start(config));
  ends.started();
  THALWEG_TRY_STATUS(lab::print_now(fmt::format("listen {}\n", server->address())));
  ends.wait();
  const ps::ParameterServer::Counters counted = server->counters();
  THALWEG_TRY_STATUS(lab::print_now(
      fmt::format("pushes {}\npulls {}\npush_bytes {}\nlost_elements {}\nrefused {}\nchanged {}\n",
                  counted.pushes, counted.pulls, counted.push_bytes, counted.lost_elements,
                  counted.refused, counted.changed)));
  return 0;
}

}  // namespace

void add_ps(CLI::App& app) {
  auto config = std::make_shared<std::string>();
  auto key_file = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("ps", "A parameter server with the optimizer on it (until interrupted)");
  command.add_option("--config", *config, "YAML (docs/parameter-server.md)")->required();
  command.add_option("--key-file", *key_file,
                     "file with the job key, which workers must prove, or 'none'; otherwise "
                     "THALWEG_KEY_FILE names it");
  add_examples(command, {"thalweg ps --config server.yaml"});
  on_run(command, [config, key_file] { return run_ps(*config, *key_file); });
}

}  // namespace thalweg::cli
