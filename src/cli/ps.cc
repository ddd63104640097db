#include "cli/ps.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/signals.h"
#include "ps/config.h"
#include "ps/server.h"

namespace thalweg {
namespace {

Result<int> run(const std::string& path) {
  THALWEG_TRY(const std::string text, read_file(path));
  THALWEG_TRY(const PsConfig config, PsConfig::parse(text, path));
  const EndSignals ends;
  THALWEG_TRY(const std::unique_ptr<ParameterServer> server, ParameterServer::start(config));
  THALWEG_TRY_STATUS(print_now(fmt::format("listen {}\n", server->address())));
  ends.wait();
  const ParameterServer::Counters counted = server->counters();
  THALWEG_TRY_STATUS(print_now(fmt::format(
      "pushes {}\npulls {}\npush_bytes {}\nlost_elements {}\nrefused {}\n", counted.pushes,
      counted.pulls, counted.push_bytes, counted.lost_elements, counted.refused)));
  return 0;
}

}  // namespace

void add_ps(CLI::App& app) {
  auto config = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("ps", "A parameter server with the optimizer on it (until interrupted)");
  command.add_option("--config", *config, "YAML (docs/parameter-server.md)")->required();
  on_run(command, [config] { return run(*config); });
}

}  // namespace thalweg
