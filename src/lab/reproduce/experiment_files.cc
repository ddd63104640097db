#include "lab/reproduce/experiment_files.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/suggest.h"
#include "lab/files.h"
#include "lab/home.h"
#include "lab/sweep/scenario_files.h"
#include "sim/scenario/experiment.h"

namespace thalweg::lab {
namespace {

Result<std::string> title_of(const std::string& text, const std::string& path) {
  try {
    const YAML::Node title = YAML::Load(text)["title"];
    if (title && title.IsScalar()) return title.Scalar();
  } catch (const YAML::Exception& error) {
    return Error(fmt::format("{}: {}", path, error.what()));
  }
  return Error(fmt::format("{}: 'title' is missing", path));
}

}  // namespace

Result<std::vector<ExperimentFile>> find_experiments() {
  const std::filesystem::path folder = std::filesystem::path(home_folder()) / "experiments";
  std::vector<ExperimentFile> found;
  std::error_code failure;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, failure);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(failure)) {
    if (failure) break;
    if (entry->path().extension() != ".yaml") continue;
    const auto name = entry->path().lexically_relative(folder).replace_extension();
    found.push_back({name.generic_string(), entry->path().string()});
  }
  if (found.empty()) {
    return Error(fmt::format("{} has no experiments (THALWEG_HOME names the project's folder)",
                             folder.string()));
  }
  std::ranges::sort(found, {}, &ExperimentFile::name);
  return found;
}

Result<std::vector<ExperimentFile>> choose_experiments(const std::vector<ExperimentFile>& all,
                                                       const std::string& what) {
  std::vector<ExperimentFile> chosen;
  for (const ExperimentFile& f : all) {
    const bool named = f.name == what || f.name.starts_with(what + "/");
    if (what.empty() ? !f.is_live() : named) chosen.push_back(f);
  }
  if (!chosen.empty()) return chosen;
  std::string list;
  std::vector<std::string> names;
  for (const ExperimentFile& f : all) {
    list += " " + f.name;
    names.push_back(f.name);
    names.push_back(f.name.substr(0, f.name.find('/')));
  }
  return Error(fmt::format("'{}' is not an experiment; there are{}{}", what, list,
                           did_you_mean(what, names)));
}

Result<std::string> list_experiments(const std::vector<ExperimentFile>& all) {
  std::vector<std::vector<std::string>> rows;
  for (const ExperimentFile& f : all) {
    THALWEG_TRY(const std::string text, read_file(f.path));
    if (f.is_live()) {
      THALWEG_TRY(const std::string title, title_of(text, f.path));
      rows.push_back({f.name, "testbed", title});
      continue;
    }
    THALWEG_TRY(const sim::Experiment experiment,
                sim::experiment_from_yaml(text, f.path, scenario_loaders("")));
    THALWEG_TRY(const auto points, sim::points_of(experiment.axes));
    rows.push_back({f.name, fmt::format("{} points", points.size()), experiment.title});
  }
  std::size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, row[0].size());
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}  {:>10}  {}\n", row[0], widest, row[1], row[2]);
  }
  return text;
}

}  // namespace thalweg::lab
