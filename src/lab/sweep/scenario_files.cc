#include "lab/sweep/scenario_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/suggest.h"
#include "lab/files.h"
#include "lab/home.h"
#include "sim/workload/chakra_model.h"

namespace thalweg::lab {
namespace {

constexpr std::string_view kChakraEnding = ".et";

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// "; did you mean …?" with a model of the folder.
std::string suggest_model(const std::string& name, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (auto entry = std::filesystem::directory_iterator(folder, failure);
       !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (entry->path().extension() == ".yaml") names.push_back(entry->path().stem());
  }
  std::ranges::sort(names);
  return did_you_mean(std::filesystem::path(name).stem().string(), names);
}

Result<sim::ModelTable> load_model(const std::string& name, const std::string& folder) {
  if (name.ends_with(kChakraEnding)) {
    const std::string path = find_file(name, "models");
    THALWEG_TRY(const std::string content, read_file(path));
    return sim::model_from_chakra(content, path);
  }
  std::string path = name.ends_with(".yaml") ? name : folder + "/" + name + ".yaml";
  if (!is_there(path)) path = find_file(path, "models");
  if (!is_there(path)) {
    return Error(fmt::format("'{}' is not a model: there is no {} (--models names the folder){}",
                             name, path, suggest_model(name, folder)));
  }
  THALWEG_TRY(const std::string text, read_file(path));
  return sim::model_from_yaml(text, path);
}

}  // namespace

sim::ScenarioLoaders scenario_loaders(const std::string& models) {
  const std::string folder = models.empty() ? home_folder() + "/models" : models;
  return {.topology = load_topology,
          .model = [folder](const std::string& name) { return load_model(name, folder); }};
}

}  // namespace thalweg::lab
