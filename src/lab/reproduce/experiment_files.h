// The experiments of `thalweg reproduce`: the YAML files below experiments/ in the project's
// folder.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

struct ExperimentFile {
  std::string name;  // "rat/fig4"
  std::string path;

  // True if the experiment is trained over a testbed by python/thalweg/e2e.py, not simulated.
  [[nodiscard]] bool is_live() const { return name.starts_with("e2e/"); }
};

// All experiments, sorted by name. It is an error if there are none.
[[nodiscard]] Result<std::vector<ExperimentFile>> find_experiments();

// The experiments of `all` that `what` names: a paper ("rat"), a figure of it ("rat/fig4"), or, if
// it is empty, all that are simulated. It is an error if there are none.
[[nodiscard]] Result<std::vector<ExperimentFile>> choose_experiments(
    const std::vector<ExperimentFile>& all, const std::string& what);

// One line per experiment: its name, its size and its title.
[[nodiscard]] Result<std::string> list_experiments(const std::vector<ExperimentFile>& all);

}  // namespace thalweg::lab
