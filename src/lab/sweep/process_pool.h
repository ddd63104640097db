// Runs independent pieces of work side by side: in child processes on this machine, and on all
// ranks if mpirun, srun or mpiexec started the program.
//
// Every piece runs in its own process, so that it leaves nothing behind in memory and cannot
// disturb another. It returns a text. The texts do not depend on how many pieces run at once.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

struct ProcessPoolOptions {
  int at_once = 0;  // child processes of this rank; 0: one per core, or one under an MPI launcher
  std::function<std::string(std::size_t)> name;  // of a piece, for errors
  std::string title = {};                        // of the whole, for progress
};

struct ProcessPoolResult {
  std::vector<std::string> texts;  // [piece]
  long peak_memory_kib = 0;        // the most that one piece took on this rank
};

// Calls work(piece) for every piece below `count`. Returns nothing on the ranks that are not the
// first, because they have handed over their texts. An error of one piece ends the others.
Result<std::optional<ProcessPoolResult>> run_in_processes(
    std::size_t count, const ProcessPoolOptions& options,
    const std::function<Result<std::string>(std::size_t)>& work);

}  // namespace thalweg::lab
