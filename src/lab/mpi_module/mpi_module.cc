#include "lab/mpi_module/mpi_module.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <limits>
#include <vector>

namespace {

int fail(char* error, std::size_t size, const char* what) {
  std::snprintf(error, size, "%s", what);
  MPI_Finalize();
  return 1;
}

}  // namespace

extern "C" int thalweg_mpi_gather(const char* data, std::size_t size, std::size_t rank,
                                  std::size_t ranks, thalweg::lab::MpiDeliver deliver,
                                  void* context, char* error, std::size_t error_size) {
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) {
    std::snprintf(error, error_size, "MPI_Init failed");
    return 1;
  }
  int own_rank = 0;
  int own_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &own_ranks);
  if (static_cast<std::size_t>(own_rank) != rank || static_cast<std::size_t>(own_ranks) != ranks) {
    return fail(error, error_size, "MPI and the launcher's environment disagree on the ranks");
  }
  unsigned long long own_size = size;
  std::vector<unsigned long long> sizes(ranks);
  MPI_Gather(&own_size, 1, MPI_UNSIGNED_LONG_LONG, sizes.data(), 1, MPI_UNSIGNED_LONG_LONG, 0,
             MPI_COMM_WORLD);
  unsigned long long total = 0;
  std::vector<int> counts;
  std::vector<int> places;
  for (const unsigned long long s : sizes) {
    counts.push_back(static_cast<int>(s));
    places.push_back(static_cast<int>(total));
    total += s;
  }
  int fits = total <= static_cast<unsigned long long>(std::numeric_limits<int>::max()) ? 1 : 0;
  MPI_Bcast(&fits, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (fits == 0) return fail(error, error_size, "the results are larger than 2 GB");
  std::vector<char> all(total);
  MPI_Gatherv(data, static_cast<int>(size), MPI_CHAR, all.data(), counts.data(), places.data(),
              MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (std::size_t r = 0; r < ranks; ++r) deliver(context, all.data() + places[r], sizes[r]);
  }
  MPI_Finalize();
  return 0;
}
