#include "cli/plan_arguments.h"

namespace thalweg::cli {

void add_plan_options(CLI::App& app, lab::PlanArguments& arguments) {
  app.add_option("--topology", arguments.topology,
                 "a topology file, or a shorthand such as "
                 "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G")
      ->required();
  app.add_option("--size", arguments.size, "size of the tensor, with a unit: 97MB, 64KiB")
      ->required();
  app.add_option("--collective", arguments.collective,
                 "allreduce, reduce, broadcast, reduce-scatter, all-gather, all-to-all, gather, "
                 "scatter or mix");
  app.add_option("--root", arguments.root,
                 "rank of the root of a reduce, broadcast, gather or scatter");
  app.add_option("--element-bytes", arguments.element_bytes, "size of one element: 1 to 16");
  app.add_option("--alpha", arguments.alpha, "what a message on an idle connection costs")
      ->group("Cost model");
  app.add_option("--follow-up", arguments.follow_up,
                 "what one more message on a busy connection costs")
      ->group("Cost model");
}

void add_output_options(CLI::App& app, lab::PlanOutputs& outputs) {
  constexpr const char* kFiles = "Files to write";
  app.add_option("--plan", outputs.plan, "write the plan as JSON (docs/plan-format.md)")
      ->group(kFiles);
  app.add_option("--xml", outputs.xml, "write the plan as MSCCL XML")->group(kFiles);
  app.add_option("--svg", outputs.svg, "draw the plan on the topology")->group(kFiles);
  app.add_option("--dot", outputs.dot, "the same for Graphviz")->group(kFiles);
  app.add_option("--timeline", outputs.timeline,
                 "write the predicted transfers as a Chrome trace (chrome://tracing, Perfetto)")
      ->group(kFiles);
  app.add_option("--tree", outputs.trees, "chunks to draw (default: the first four that differ)")
      ->delimiter(',')
      ->group(kFiles);
}

std::vector<CLI::Option*> add_strategy_options(CLI::App& app, lab::StrategyArguments& arguments) {
  app.get_option("--size")->required(false)->description(
      "size of what is exchanged; 100MB if not given");
  std::vector<CLI::Option*> options = {
      app.add_option(
          "--model", arguments.model,
          "a layer table (docs/model-format.md): its size, and iterations with computing"),
      app.add_option("--agree-within", arguments.agree_within,
                     "iterations within which workers must agree to be chosen"),
      app.add_option(
          "--strategy", arguments.strategies,
          "only these: a scheme of plans, gossip, local-sgd, asp, ssp, atp or ds-sync:key=value,…"),
      app.add_option(
             "--slow", arguments.slow,
             "regions and hosts whose links are slow; the DS-Sync of the default strategies goes "
             "round them, one named by --strategy is told by slow=")
          ->delimiter(','),
      app.add_option("--slow-factor", arguments.slow_factor, "how many times slower they are"),
      app.add_option("--seed", arguments.seed,
                     "seed of DS-Sync's shuffling, where it is among the default strategies (1)"),
      app.add_flag("--in-switch", arguments.in_switch,
                   "the switches of the network sum (ATP): strategies with that, too")};
  for (CLI::Option* option : options) option->group("Strategies");
  return options;
}

}  // namespace thalweg::cli
