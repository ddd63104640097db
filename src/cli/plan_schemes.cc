// `thalweg plan schemes`: the list of schemes and their parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/commands.h"
#include "plan/scheme.h"

namespace thalweg::cli {
namespace {

int print_json() {
  auto rows = nlohmann::ordered_json::array();
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    auto& row = rows.emplace_back(
        nlohmann::ordered_json{{"scheme", scheme->name}, {"summary", scheme->summary}});
    for (const plan::Collective c : scheme->collectives) {
      row["collectives"].push_back(plan::name_of(c));
    }
    row["parameters"] = nlohmann::ordered_json::array();
    for (const plan::ParameterSpec& parameter : scheme->parameters) {
      row["parameters"].push_back({{"name", parameter.name},
                                   {"default", parameter.default_value},
                                   {"meaning", parameter.meaning}});
    }
  }
  std::cout << rows.dump(2) << '\n';
  return 0;
}

Result<int> run_plan_schemes(bool as_json) {
  if (as_json) return print_json();
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    std::vector<std::string_view> collectives;
    collectives.reserve(scheme->collectives.size());
    for (const plan::Collective c : scheme->collectives) collectives.emplace_back(plan::name_of(c));
    std::cout << fmt::format("{}\n  {}\n  {}\n", scheme->name, scheme->summary,
                             fmt::join(collectives, ", "));
    for (const plan::ParameterSpec& parameter : scheme->parameters) {
      std::cout << fmt::format("  {}={}: {}\n", parameter.name, parameter.default_value,
                               parameter.meaning);
    }
  }
  return 0;
}

}  // namespace

void add_plan_schemes(CLI::App& plan) {
  CLI::App& app = *plan.add_subcommand("schemes", "list the schemes and their parameters");
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "print a JSON array, one object a scheme");
  add_examples(app, {"thalweg plan schemes"});
  on_run(app, [as_json] { return run_plan_schemes(*as_json); });
}

}  // namespace thalweg::cli
