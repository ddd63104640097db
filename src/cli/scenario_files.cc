#include "cli/scenario_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/home.h"

namespace thalweg {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<ModelTable> load_model(const std::string& name, const std::string& folder) {
  std::string path = name.ends_with(".yaml") ? name : folder + "/" + name + ".yaml";
  if (!is_there(path) && is_there(home_folder() + "/" + path)) path = home_folder() + "/" + path;
  if (!is_there(path)) {
    return Error(
        fmt::format("'{}' is not a model: there is no {} (--models names the folder)", name, path));
  }
  THALWEG_TRY(const std::string text, read_file(path));
  return model_from_yaml(text, path);
}

}  // namespace

ScenarioLoaders scenario_loaders(const std::string& models) {
  const std::string folder = models.empty() ? home_folder() + "/models" : models;
  return {.topology =
              [](const std::string& argument) {
                const std::string in_project = home_folder() + "/" + argument;
                return load_topology(!is_there(argument) && is_there(in_project) ? in_project
                                                                                 : argument);
              },
          .model = [folder](const std::string& name) { return load_model(name, folder); }};
}

}  // namespace thalweg
