#include "cli/sim_options.h"

namespace thalweg::cli {

void add_sweep_options(CLI::App& app, lab::SweepArguments& arguments, const std::string& set_help) {
  app.add_option("--set", arguments.settings, set_help)
      ->type_name("K=V")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-j,--jobs", arguments.at_once, "points of a sweep at once (0: all cores)");
}

void add_picture_options(CLI::App& app, lab::PictureArguments& arguments) {
  app.add_option("--trace", arguments.trace,
                 "write a timeline: .json for ui.perfetto.dev and Chrome, .jsonl or .txt");
  app.add_option("--plot", arguments.plot, "draw the run: .svg, .png or .pdf");
}

}  // namespace thalweg::cli
