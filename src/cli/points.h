// Independent pieces of work side by side: in child processes on this machine, and under mpirun,
// srun or mpiexec on all their ranks.
//
// A piece is a process of its own, so that it leaves nothing behind in memory and cannot spoil
// another; what it returns is text. The texts are the same however many run at once.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct PointsOptions {
  int at_once = 0;  // child processes of this rank; 0: one a core, or one under an MPI launcher
  std::function<std::string(std::size_t)> name;  // of a piece, for errors
};

struct PointsResult {
  std::vector<std::string> texts;
  long peak_memory_kib = 0;  // the most that one piece took on this rank
};

// Nothing on the ranks that are not the first: they have handed over what they did. An error of one
// piece ends the others.
Result<std::optional<PointsResult>> run_points(
    std::size_t count, const PointsOptions& options,
    const std::function<Result<std::string>(std::size_t)>& work);

}  // namespace thalweg
