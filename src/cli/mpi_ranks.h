// The ranks of an MPI launcher, if this program was started by one, and how their results come
// together. MPI itself is in a module (src/mpi_module) that is loaded only then: the program runs
// where there is none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct MpiRanks {
  std::size_t rank = 0;
  std::size_t count = 1;
};

// From the launcher's environment: Open MPI, MPICH and those built on it, or Slurm with MPI.
MpiRanks mpi_ranks();

// Rank r holds texts[i] for i = r, r + count, …; afterwards the first rank holds all. Every rank
// must call it.
Status gather_texts(const MpiRanks& ranks, std::vector<std::string>& texts);

}  // namespace thalweg
