#include "lab/reproduce/live_experiments.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "lab/home.h"
#include "net/io/system.h"

namespace thalweg::lab {

Error run_live_experiments(const std::vector<ExperimentFile>& experiments,
                           const LiveOptions& options) {
  std::vector<std::string> words{python_interpreter(), "-m", "thalweg.lab.e2e", "--program",
                                 std::filesystem::read_symlink("/proc/self/exe").string()};
  if (options.quick) words.emplace_back("--quick");
  if (options.json) words.emplace_back("--json");
  if (options.output) words.insert(words.end(), {"--output", *options.output});
  for (const ExperimentFile& one : experiments) words.push_back(one.path);
  setenv("PYTHONPATH", (home_folder() + "/python").c_str(), 1);
  setenv("THALWEG_BACKEND", "0", 1);  // the script itself needs no PyTorch
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return net::system_error(fmt::format("cannot run {}", words[0]), errno);
}

}  // namespace thalweg::lab
