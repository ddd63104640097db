#include "lab/home.h"

#include <cstdlib>
#include <filesystem>

namespace thalweg::lab {
namespace {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets any
  return value == nullptr ? "" : value;
}

std::filesystem::path program_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

}  // namespace

std::string home_folder() {
  std::string named = environment_variable("THALWEG_HOME");
  if (!named.empty()) return named;
  std::error_code ignored;
  const std::filesystem::path program = program_path();
  // In the build tree the data is beside the program, as a symbolic link to the sources. Where the
  // program is installed (bin/thalweg), it is beside the program's folder.
  std::filesystem::path found = program.parent_path() / "share" / "thalweg";
  if (!std::filesystem::exists(found / "models", ignored)) {
    found = program.parent_path().parent_path() / "share" / "thalweg";
  }
  const std::filesystem::path resolved = std::filesystem::canonical(found, ignored);
  return (resolved.empty() ? found : resolved).string();
}

std::string python_interpreter() {
  std::string named = environment_variable("THALWEG_PYTHON");
  if (!named.empty()) return named;
  std::error_code ignored;
  std::string own = home_folder() + "/.venv/bin/python";
  if (std::filesystem::exists(own, ignored)) return own;
  // pip puts the program beside the interpreter of the environment that it installs to.
  std::string beside = (program_path().parent_path() / "python3").string();
  return std::filesystem::exists(beside, ignored) ? beside : "python3";
}

}  // namespace thalweg::lab
