#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/allreduce/rank_process.h"

namespace thalweg::cli {

void add_bench_allreduce_rank(CLI::App& bench) {
  auto arguments = std::make_shared<lab::allreduce::RankArguments>();
  CLI::App& app = *bench.add_subcommand("allreduce-rank", "a rank of bench allreduce");
  app.group("");
  app.add_option("type", arguments->type)->required();
  app.add_option("op", arguments->op)->required();
  app.add_option("--transport", arguments->transport);
  app.add_option("--scheme", arguments->scheme);
  app.add_option("--topology", arguments->topology);
  app.add_option("--bound", arguments->bound);
  app.add_option("--rate-gbps", arguments->rate_gbps);
  app.add_flag("--bare", arguments->bare);
  on_run(app, [arguments]() -> Result<int> {
    THALWEG_TRY_STATUS(lab::allreduce::serve_rank(*arguments));
    return 0;
  });
}

}  // namespace thalweg::cli
