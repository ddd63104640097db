// The interface between the program and the module that is linked with MPI: one function of plain
// C.
#pragma once

#include <cstddef>

namespace thalweg::lab {

inline constexpr const char* kMpiModuleFile = "libthalweg_mpi.so";
inline constexpr const char* kMpiGatherName = "thalweg_mpi_gather";

// Brings the bytes of every rank to rank 0, which gets them by deliver(context, data, size): one
// call per rank, in the order of ranks. Starts and ends MPI, so every rank must call it, at most
// once in a process. Returns 0, or else `error` says what is wrong.
using MpiDeliver = void (*)(void* context, const char* data, std::size_t size);
using MpiGather = int (*)(const char* data, std::size_t size, std::size_t rank, std::size_t ranks,
                          MpiDeliver deliver, void* context, char* error, std::size_t error_size);

}  // namespace thalweg::lab
