// Ranks as threads of one process, each with a communicator of its own, over loopback.
#pragma once

#include <fmt/format.h>
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
#include "net/address.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

// A port of loopback that was free a moment ago.
inline std::string free_address() {
  const Fd fd = std::move(listen_tcp("127.0.0.1:0").value());
  return SocketAddress::local_of(fd.get()).to_string();
}

// Another one every time, or THALWEG_FIRST_SEED; printed.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : random_number() % 1'000'000'000;
  fmt::print("seed {}: again by THALWEG_FIRST_SEED={}\n", seed, seed);
  return seed;
}

// Over DLCP, which loses one packet in `one_in`, by its number.
inline CommunicatorOptions lossy_dlcp(std::uint64_t one_in) {
  CommunicatorOptions options;
  options.transport = Transport::kDlcp;
  options.dlcp_line_rate_gbps = 1;
  if (one_in > 0) {
    options.dlcp_lose = [one_in](std::uint64_t sequence) {
      return mix_bits(sequence) % one_in == 0;
    };
  }
  return options;
}

using RankBody = std::function<void(Communicator&)>;
using OptionsOfRank = std::function<CommunicatorOptions(int rank)>;

inline void run_ranks_by(int size, const OptionsOfRank& options_of, const RankBody& body) {
  const std::string store = free_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
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

// Over the network, as if ranks had up to three interfaces each, not all as many, and networks that
// choose paths by ports.
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

// A rank as a process of its own; it ends with 0 if the body says true.
inline pid_t fork_rank(const CommunicatorOptions& options,
                       const std::function<bool(Communicator&)>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  Result<Communicator> all = Communicator::create(options);
  _exit(all.ok() && body(*all) ? 0 : 1);
}

// 128 + n if signal n ended it.
inline int exit_code(pid_t process) {
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace thalweg
