// The ranks of an MPI launcher, if one started this program, and how their results are collected.
// MPI itself is in a module (lab/mpi_module) that is loaded only then, so the program also runs
// where there is no MPI.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

struct MpiRanks {
  std::size_t rank = 0;
  std::size_t count = 1;
};

// Reads the environment of the launcher: Open MPI, MPICH and those built on it, or Slurm with MPI.
// A program without a launcher is the only rank.
MpiRanks mpi_ranks();

// Collects texts at the first rank. Before the call rank r holds texts[i] for i = r, r + count, …;
// afterwards the first rank holds all. Every rank must call it.
Status gather_texts(const MpiRanks& ranks, std::vector<std::string>& texts);

}  // namespace thalweg::lab
