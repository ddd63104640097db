// The border between the program and the module that links MPI: plain C, one function.
#pragma once

#include <cstddef>

namespace thalweg {

inline constexpr const char* kMpiModuleFile = "libthalweg_mpi.so";
inline constexpr const char* kMpiGatherName = "thalweg_mpi_gather";

// Brings every rank's bytes to rank 0, which gets them by deliver(context, data, size), one call a
// rank in their order. Starts and ends MPI: at most once in a process, and by every rank. 0, or
// else `error` says what is wrong.
using MpiDeliver = void (*)(void* context, const char* data, std::size_t size);
using MpiGather = int (*)(const char* data, std::size_t size, std::size_t rank, std::size_t ranks,
                          MpiDeliver deliver, void* context, char* error, std::size_t error_size);

}  // namespace thalweg
