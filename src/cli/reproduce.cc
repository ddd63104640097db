// `thalweg reproduce`: figures of the papers, as the files of experiments/ describe them. They are
// simulated, or, those of experiments/e2e, trained over testbeds.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/sim_options.h"
#include "lab/reproduce/experiment_files.h"
#include "lab/reproduce/live_experiments.h"
#include "lab/reproduce/reproduction.h"

namespace thalweg::cli {
namespace {

struct ReproduceArguments {
  std::string what;  // "", "rat" or "rat/fig4"
  std::string output = "reproduce";
  lab::SweepArguments sweep;
  bool list = false;
  bool quick = false;
  bool json = false;
  bool no_plots = false;
};

Result<int> run_live(const std::vector<lab::ExperimentFile>& chosen,
                     const ReproduceArguments& arguments) {
  if (!arguments.sweep.settings.empty()) {
    return Error("--set: the experiments of e2e are trained, not simulated: change their files");
  }
  if (arguments.sweep.at_once != 0) {
    return Error("-j: the experiments of e2e have the machine to themselves, one after the other");
  }
  lab::LiveOptions options{.quick = arguments.quick, .json = arguments.json, .output = {}};
  if (!arguments.no_plots) options.output = arguments.output;
  return lab::run_live_experiments(chosen, options);
}

Result<int> run_simulated(const std::vector<lab::ExperimentFile>& chosen,
                          const ReproduceArguments& arguments) {
  THALWEG_TRY(const sim::Settings settings, lab::parse_settings(arguments.sweep));
  // Bad input is found before the first point of the first experiment runs.
  std::vector<lab::PreparedExperiment> experiments;
  for (const lab::ExperimentFile& file : chosen) {
    THALWEG_TRY(lab::PreparedExperiment prepared,
                lab::prepare_experiment(file, arguments.quick, settings));
    experiments.push_back(std::move(prepared));
  }
  if (!arguments.no_plots) THALWEG_TRY_STATUS(lab::prepare_plot_folder(arguments.output));
  sim::Json results = sim::Json::array();
  bool all_finished = true;
  for (const lab::PreparedExperiment& experiment : experiments) {
    THALWEG_TRY(const auto r, lab::reproduce(experiment, arguments.quick, arguments.sweep.at_once));
    if (!r) continue;
    std::vector<std::string> plots;
    if (!arguments.no_plots) {
      THALWEG_TRY(plots, lab::draw_plots(*r, arguments.output));
    }
    results.push_back(lab::reproduction_json(*r, plots));
    if (!arguments.json) std::cout << lab::reproduction_text(*r, plots);
    all_finished = all_finished && lab::unfinished_points(*r).empty();
  }
  if (arguments.json && !results.empty()) {
    std::cout << (results.size() == 1 ? results[0] : results).dump(2) << '\n';
  }
  return all_finished ? 0 : kExitNo;
}

Result<int> run_reproduce(const ReproduceArguments& arguments) {
  THALWEG_TRY(const std::vector<lab::ExperimentFile> all, lab::find_experiments());
  if (arguments.list) {
    THALWEG_TRY(const std::string text, lab::list_experiments(all));
    std::cout << text;
    return 0;
  }
  THALWEG_TRY(const std::vector<lab::ExperimentFile> chosen,
              lab::choose_experiments(all, arguments.what));
  return chosen.front().is_live() ? run_live(chosen, arguments) : run_simulated(chosen, arguments);
}

}  // namespace

void add_reproduce(CLI::App& program) {
  auto arguments = std::make_shared<ReproduceArguments>();
  CLI::App& app = *program.add_subcommand(
      "reproduce",
      "figures of the papers: the paper's numbers, ours and the ratio, with plots; "
      "exit code 1 if a point did not finish");
  app.add_option(
      "experiment", arguments->what,
      "PAPER, PAPER/FIGURE, or e2e (trained over testbeds); all simulations if none is named");
  app.add_flag("--list", arguments->list, "list the experiments");
  app.add_flag("--quick", arguments->quick, "a first look: the few points the experiment names");
  app.add_option("-o,--out", arguments->output, "folder for the plots");
  app.add_option("--output", arguments->output)->group("");  // the older name
  app.add_flag("--no-plots", arguments->no_plots, "draw nothing");
  add_sweep_options(app, arguments->sweep, "key=value: changes every point's scenario");
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app,
               {"thalweg reproduce --list", "thalweg reproduce rat/fig4 --quick --out figures"});
  on_run(app, [arguments] { return run_reproduce(*arguments); });
}

}  // namespace thalweg::cli
