// Who this process is in its job, from what its launcher put into the environment
// (docs/launching.md).
//
// THALWEG_* wins over everything. Otherwise the first launcher counts that gives both a rank and a
// size: torchrun (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_*), MPICH and those built on it
// (PMI_*), Slurm (SLURM_*, within a step). Without any, the process is alone: rank 0 of 1.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "wire/authenticate.h"
#include "wire/wire.h"

namespace thalweg {

inline constexpr int kMaxJobSize = 1 << 20;
inline constexpr std::size_t kMaxInterfaces = 16;
inline constexpr int kMaxStreams = 16;
inline constexpr int kMaxChannels = 8;

// The value of an environment variable. One that is empty counts as not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

struct Environment {
  int rank = 0;
  int size = 1;
  // Among the processes of this host; none: the launcher does not say.
  std::optional<int> local_rank;
  std::optional<int> local_size;
  // "host:port" of the rendezvous store. Empty only if the process is alone.
  std::string store;
  // Rank 0 starts the store, at store_listen_address(). False: the launcher runs it.
  bool rank0_starts_store = true;
  // Equal on all ranks of the job. One that THALWEG_TOKEN did not give is derived from what the
  // launcher calls the job: it keeps jobs apart, and is no secret.
  JobToken token = 0;
  std::string key_file;  // of the job key; empty: none
  // To use, by name or by an address; each once. Empty: the one that reaches the store.
  std::vector<std::string> interfaces;
  int streams = 1;              // of TCP, for each pair of interfaces of two ranks
  std::optional<int> channels;  // none: by the cores
  bool shared_memory = true;    // between processes of a host
  bool moves_apart = true;      // the higher of two ranks of a host that are on one core
  std::string switch_address;   // "host:port" of a switch's control socket; empty: none
  std::string switch_token;     // its secret; empty: none
  std::string launcher;         // for messages: "torchrun", …; "" if the process is alone
};

// Errors name the variable, its value and what is allowed.
[[nodiscard]] Result<Environment> environment_from(const EnvironmentLookup& lookup);

// The job key in the file of THALWEG_KEY_FILE; none: the job has none.
[[nodiscard]] Result<std::optional<JobKey>> job_key_from(const EnvironmentLookup& lookup);

// Variables of this process.
[[nodiscard]] EnvironmentLookup process_environment();

// Where rank 0 listens when the others are told `store`: at that address if it is a loopback one,
// and at all addresses of the host otherwise, whatever the name means there.
[[nodiscard]] Result<std::string> store_listen_address(const std::string& store);

}  // namespace thalweg
