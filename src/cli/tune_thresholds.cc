#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <string>

#include "base/segment_tag.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "lab/tuning/thresholds.h"
#include "lab/tuning/thresholds_report.h"

namespace thalweg::cli {
namespace {

Result<int> run_tune_thresholds(lab::ThresholdOptions options, bool as_json) {
  if (as_json) options.format = "json";
  THALWEG_TRY(const lab::TunedThresholds tuned, lab::tune_thresholds(options));
  THALWEG_TRY(const std::string report, lab::thresholds_report(tuned, options));
  std::cout << report;
  return 0;
}

// Validators for CLI11: they return an empty text if the value is good, else what is wrong with it.
std::string check_fraction(const std::string& text) {
  double value = 0;
  if (CLI::detail::lexical_cast(text, value) && value >= 0.01 && value <= 0.99) return {};
  return fmt::format("'{}' is no share: write a number from 0.01 to 0.99", text);
}

// Names of ports are pasted into the configuration of a switch: no blanks, quotes or line ends.
std::string check_port(const std::string& text) {
  const bool good = !text.empty() && text.find_first_not_of(
                                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789/-_,.:") == std::string::npos;
  if (good) return {};
  return fmt::format("'{}' is no name of a port: use letters, digits and / - _ , . :", text);
}

}  // namespace

void add_tune_thresholds(CLI::App& tune) {
  auto options = std::make_shared<lab::ThresholdOptions>();
  CLI::App& app = *tune.add_subcommand(
      "thresholds",
      "where switches start to drop small gradients, and all: solved per queue (DLCP, appendix B)");
  app.add_option("--model", options->model, "layer table: a name in models/, or a file")
      ->required();
  app.add_option("--topology", options->topology, "file or shorthand")->required();
  app.add_option("--scheme", options->scheme, "how the model is synchronized; finds the port")
      ->capture_default_str();
  app.add_option("--queues", options->queues, "queues of a port, the first one for control")
      ->check(CLI::Range(2, static_cast<int>(kPriorityCount)))
      ->capture_default_str();
  app.add_option("--weights", options->weights,
                 "what losses cost, per layer and magnitude (docs/operating.md)");
  app.add_option("--buffer", options->buffer,
                 "buffer of a port, as in 512KiB (what the topology says)");
  app.add_option("--packet", options->packet, "size of a packet")->capture_default_str();
  app.add_option("--load", options->load,
                 "arrivals over capacity of the port, or 'mean': over an iteration")
      ->capture_default_str();
  app.add_option("--small-fraction", options->small_fraction,
                 "share of the packets that carry small gradients")
      ->check(check_fraction, "SHARE")
      ->capture_default_str();
  app.add_option("--port", options->ports, "switch ports to configure; may be given again")
      ->check(check_port, "NAME");
  app.add_option("--models", options->models, "folder of layer tables");
  app.add_option("--format", options->format)
      ->check(one_of({"table", "json", "thalweg", "sonic", "cumulus", "onyx"}))
      ->capture_default_str();
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "print a JSON object, as --format json");
  add_examples(app,
               {"thalweg tune thresholds --model resnet50 --topology two-racks --format sonic"});
  on_run(app, [options, as_json] { return run_tune_thresholds(*options, *as_json); });
}

}  // namespace thalweg::cli
