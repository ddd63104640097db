#include "cli/switch.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/signals.h"
#include "switchd/config.h"
#include "switchd/daemon.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string config;
};

Result<int> run(const Arguments& arguments) {
  SwitchConfig config;
  if (!arguments.config.empty()) {
    THALWEG_TRY(const std::string text, read_file(arguments.config));
    THALWEG_TRY(config, SwitchConfig::parse(text, arguments.config));
  }
  const EndSignals ends;
  THALWEG_TRY(const std::unique_ptr<SwitchDaemon> daemon, SwitchDaemon::start(config));
  std::string addresses = fmt::format("control {}\n", daemon->control_address());
  for (const std::string& address : daemon->data_addresses()) {
    addresses += fmt::format("data {}\n", address);
  }
  THALWEG_TRY_STATUS(print_now(addresses));
  ends.wait();
  return 0;
}

}  // namespace

void add_switch(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "switch", "A software switch that sums gradients on their way (until interrupted)");
  command.add_option("--config", arguments->config, "YAML (docs/switch.md); none: the defaults");
  on_run(command, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
