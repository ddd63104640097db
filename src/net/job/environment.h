// This process's place in its job, from the environment variables that its launcher set
// (docs/launching.md).
//
// THALWEG_* variables take precedence. Otherwise the first launcher of this list counts that gives
// both a rank and a size: torchrun (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_*), MPICH and
// launchers built on it (PMI_*), Slurm (SLURM_*, within a step). Without any, the process is alone:
// rank 0 of 1.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/stream_check.h"
#include "net/job/debug_log.h"
#include "wire/authenticate.h"
#include "wire/wire.h"

namespace thalweg::net {

inline constexpr int kMaxJobSize = 1 << 20;
inline constexpr std::size_t kMaxInterfaces = 16;
inline constexpr int kMaxStreams = 16;
inline constexpr int kMaxChannels = 8;

// Returns the value of an environment variable. An empty value counts as not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

struct Environment {
  int rank = 0;
  int size = 1;
  // Rank and number among the processes of this host; none if the launcher does not tell.
  std::optional<int> local_rank;
  std::optional<int> local_size;
  // "host:port" of the rendezvous store. May be empty only if the process is alone.
  std::string store;
  // True: rank 0 starts the store, at store_listen_address(). False: the launcher runs it.
  bool rank0_starts_store = true;
  // Equal on all ranks of the job. Without THALWEG_TOKEN it is derived from the launcher's name for
  // the job: such a token keeps jobs apart but is not secret, and it is used only where rank 0
  // cannot hand out a random one.
  wire::JobToken token = 0;
  // Where rank 0 hands out a random token (net/store/token_desk.h); empty: THALWEG_TOKEN gives it.
  std::string token_desk;
  std::string newcomers_desk;  // the same, for processes that join the job later
  // All ranks are on this host: the launcher says so, or they meet at a loopback address.
  bool one_host = false;
  std::string key_file;  // file with the job key; empty: no key
  // Interfaces to use, by name or address, each once. Empty: the one that reaches the store.
  std::vector<std::string> interfaces;
  int streams = 1;              // TCP streams per way (pair of interfaces of two ranks)
  std::optional<int> channels;  // none: chosen by the number of cores
  std::optional<int> dlcp_payload;
  int dlcp_paths = 0;         // to each rank; 0: chosen by where it is (EndpointOptions::paths)
  bool shared_memory = true;  // between processes of a host
  bool trials = true;         // Transport::kAuto may try several ways
  bool checksum = true;       // of frames on TCP; of DLCP's packets of data, without a job key
  bool checksum_within_host = false;  // also of frames on TCP that stay on this host
  // The same two, of TCP streams.
  [[nodiscard]] StreamChecks stream_checks() const {
    if (!checksum) return StreamChecks::kNone;
    return checksum_within_host ? StreamChecks::kAll : StreamChecks::kBetweenHosts;
  }
  bool encrypt = true;   // TCP streams between ranks, if there is a job key
  std::string switches;  // a list of switches (net/atp/switch_list.h); empty: none
  // The network, for several switches: a shorthand or the path of a file; empty: not told. The host
  // of this process there, by name or number; empty: the one whose number is this rank.
  std::string topology;
  std::string host;
  DebugLevel debug = DebugLevel::kOff;
  std::string launcher;  // for messages: "torchrun", …; empty if the process is alone
};

// Errors name the variable, its value and what is allowed.
[[nodiscard]] Result<Environment> environment_from(const EnvironmentLookup& lookup);

// The job key in the file that THALWEG_KEY_FILE names; none if the variable is not set.
[[nodiscard]] Result<std::optional<wire::JobKey>> job_key_from(const EnvironmentLookup& lookup);

// The same for a program whose option --key-file names `file`: that file's key, none if it is
// "none", and job_key_from() if it is empty.
[[nodiscard]] Result<std::optional<wire::JobKey>> job_key_given(const EnvironmentLookup& lookup,
                                                                const std::string& file);

// The key in this file.
[[nodiscard]] Result<std::optional<wire::JobKey>> job_key_in(const std::string& file);

// What THALWEG_CHECKSUM says of TCP streams.
[[nodiscard]] Result<StreamChecks> stream_checks_from(const EnvironmentLookup& lookup);

// Looks up the variables of this process.
[[nodiscard]] EnvironmentLookup process_environment();

// The address that rank 0 listens at if the other ranks connect to `store`: that address if it is a
// loopback address, otherwise all addresses of the host, because the name may resolve differently
// there.
[[nodiscard]] Result<std::string> store_listen_address(const std::string& store);

}  // namespace thalweg::net
