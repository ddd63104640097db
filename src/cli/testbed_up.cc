#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/testbed/up.h"

namespace thalweg::cli {
namespace {

Result<int> up(const lab::TestbedUpOptions& options) {
  THALWEG_TRY_STATUS(lab::bring_up_testbed(options, [](const std::string& text) {
    std::cout << text << std::flush;
    return static_cast<bool>(std::cout);
  }));
  return 0;
}

}  // namespace

void add_testbed_up(CLI::App& testbed) {
  auto options = std::make_shared<lab::TestbedUpOptions>();
  CLI::App& app = *testbed.add_subcommand("up", "make the hosts and the network between them");
  app.add_option("topology", options->topology, "a file or a shorthand")->required();
  add_testbed_name(app, options->name);
  app.add_option("--scale", options->scale,
                 "rates by this factor, delays by its inverse: the network in slow motion")
      ->capture_default_str();
  app.add_option("--mtu", options->mtu, "MTU of the hosts' devices")
      ->check(CLI::Range(576, 9000))
      ->capture_default_str();
  app.add_option("--set", options->settings,
                 "a setting of the switches, as in a scenario's 'network': mark_above=30KB")
      ->allow_extra_args(false);
  app.add_option("--aggregate", options->aggregate,
                 "a switch that sums gradients of ATP (may be given again), or all")
      ->allow_extra_args(false);
  app.add_flag("--foreground", options->foreground, "stay; Ctrl-C takes the testbed down");
  add_examples(app, {"thalweg testbed up single-switch:hosts=4,host=50M,delay=100us",
                     "thalweg testbed up two-racks --scale 0.01 --foreground"});
  on_run(app, [options] { return up(*options); });
}

}  // namespace thalweg::cli
