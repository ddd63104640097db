#include "cli/home.h"

#include <cstdlib>
#include <filesystem>

namespace thalweg {
namespace {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets any
  return value == nullptr ? "" : value;
}

}  // namespace

std::string home_folder() {
  const std::string home = environment_variable("THALWEG_HOME");
  return home.empty() ? THALWEG_SOURCE_FOLDER : home;
}

std::string python_interpreter() {
  std::string named = environment_variable("THALWEG_PYTHON");
  if (!named.empty()) return named;
  std::string own = home_folder() + "/.venv/bin/python";
  std::error_code ignored;
  return std::filesystem::exists(own, ignored) ? own : "python3";
}

}  // namespace thalweg
