// Ranks as threads of one process, each with a communicator of its own, over loopback.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "base/prng.h"
#include "net/dlcp/test_faults.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/io/test_changes.h"

namespace thalweg::net {

// A port of loopback that was free a moment ago. It is below those that the system gives to sockets
// without a port of their own, so that no connection of a test that runs beside this one takes it.
inline std::string free_address() {
  constexpr std::uint64_t kFirst = 20'000;
  constexpr std::uint64_t kCount = 12'000;
  while (true) {
    const std::string address = fmt::format("127.0.0.1:{}", kFirst + random_number() % kCount);
    if (listen_tcp(address).ok()) return address;
  }
}

// Returns and prints a seed: THALWEG_FIRST_SEED, or a new one every time.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : random_number() % 1'000'000'000;
  fmt::print("seed {}: again by THALWEG_FIRST_SEED={}\n", seed, seed);
  return seed;
}

inline CommunicatorOptions over_dlcp() {
  CommunicatorOptions options;
  options.transport = Transport::kDlcp;
  options.dlcp_line_rate_gbps = 1;
  return options;
}

// Loses one DLCP packet in `one_in`, chosen by its sequence number.
inline LosePacket lose_one_in(std::uint64_t one_in) {
  return [one_in](std::uint64_t sequence) { return mix_bits(sequence) % one_in == 0; };
}

using RankBody = std::function<void(Communicator&)>;
using OptionsOfRank = std::function<CommunicatorOptions(int rank)>;

// The caller's ScopedLoss and ScopedChanges hold for every rank.
inline void run_ranks_by(int size, const OptionsOfRank& options_of, const RankBody& body) {
  const std::string store = free_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, lose = installed_loss(), change = installed_changes()] {
      const ScopedLoss loss(lose);
      const ScopedChanges changes(change);
      CommunicatorOptions options = options_of(rank);
      options.rank = rank;
      options.size = size;
      options.store = store;
      Result<Communicator> communicator = Communicator::create(options);
      ASSERT_TRUE(communicator.ok()) << communicator.error().message();
      body(*communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void run_ranks(int size, const CommunicatorOptions& common, const RankBody& body) {
  run_ranks_by(size, [&](int) { return common; }, body);
}

// Options for ranks that use the network as if they had one to three interfaces each, and `streams`
// streams for each pair of interfaces.
inline OptionsOfRank several_ways(int streams) {
  return [streams](int rank) {
    CommunicatorOptions options;
    options.shared_memory = false;
    options.interfaces = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    options.interfaces.resize(static_cast<std::size_t>(1 + rank % 3));
    options.streams = streams;
    return options;
  };
}

// Runs a rank as a process of its own. Its exit code is 0 if the body returns true.
inline pid_t fork_rank(const CommunicatorOptions& options,
                       const std::function<bool(Communicator&)>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  Result<Communicator> all = Communicator::create(options);
  _exit(all.ok() && body(*all) ? 0 : 1);
}

// Waits for the process and returns its exit code, or 128 + n if signal n ended it.
inline int exit_code(pid_t process) {
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace thalweg::net
