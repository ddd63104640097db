#include "cli/commands.h"

#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "lab/console.h"
#include "launch/signals.h"
#include "net/atp/switch_secrets.h"
#include "net/io/small_file.h"
#include "switchd/config.h"
#include "switchd/daemon.h"

namespace thalweg::cli {
namespace {

struct SwitchArguments {
  std::string config;
  std::string key_file;
};

Result<int> run_switch(const SwitchArguments& arguments) {
  switchd::SwitchConfig config;
  if (!arguments.config.empty()) {
    THALWEG_TRY(const std::string text,
                net::read_small_file(arguments.config, "the configuration", net::kMaxConfigFile));
    THALWEG_TRY(config, switchd::SwitchConfig::parse(text, arguments.config));
  }
  THALWEG_TRY(config.key, net::switch_key_from(net::process_environment(), arguments.key_file));
  const bool drawn = config.draw_token();
  launch::EndSignals ends;
  THALWEG_TRY(const std::unique_ptr<switchd::SwitchDaemon> daemon,
              switchd::SwitchDaemon::start(config));
  ends.started();
  std::string addresses = fmt::format("control {}\n", daemon->control_address());
  for (const std::string& address : daemon->data_addresses()) {
    addresses += fmt::format("data {}\n", address);
  }
  if (drawn) addresses += fmt::format("token {}\n", *config.token);
  THALWEG_TRY_STATUS(lab::print_now(addresses));
  ends.wait();
  return 0;
}

}  // namespace

void add_switch(CLI::App& app) {
  auto arguments = std::make_shared<SwitchArguments>();
  CLI::App& command = *app.add_subcommand(
      "switch", "A software switch that sums gradients on their way (until interrupted)");
  command.add_option("--config", arguments->config, "YAML (docs/switch.md); none: the defaults");
  command.add_option("--key-file", arguments->key_file,
                     "file with the key that clients of the control socket must prove, or 'none'; "
                     "otherwise THALWEG_SWITCH_KEY_FILE or THALWEG_KEY_FILE names it");
  add_examples(command, {"thalweg switch", "thalweg switch --config switch.yaml",
                         "thalweg switch --key-file /run/switch.key"});
  on_run(command, [arguments] { return run_switch(*arguments); });
}

}  // namespace thalweg::cli
