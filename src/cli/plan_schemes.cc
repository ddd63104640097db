// `thalweg plan schemes`: what there is to choose from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "cli/command.h"
#include "cli/plan.h"
#include "plan/scheme.h"

namespace thalweg {
namespace {

Result<int> run() {
  for (const Scheme* scheme : all_schemes()) {
    std::vector<std::string_view> collectives;
    collectives.reserve(scheme->collectives.size());
    for (const Collective c : scheme->collectives) collectives.emplace_back(name_of(c));
    std::cout << fmt::format("{}\n  {}\n  {}\n", scheme->name, scheme->summary,
                             fmt::join(collectives, ", "));
    for (const ParameterSpec& parameter : scheme->parameters) {
      std::cout << fmt::format("  {}={}: {}\n", parameter.name, parameter.default_value,
                               parameter.meaning);
    }
  }
  return 0;
}

}  // namespace

void add_plan_schemes(CLI::App& plan) {
  CLI::App& app = *plan.add_subcommand("schemes", "list the schemes and their parameters");
  on_run(app, run);
}

}  // namespace thalweg
