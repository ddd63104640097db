// Ranks as threads of one process, each with a communicator of the C API.
#pragma once

#include <thalweg/thalweg.h>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/ranks.h"

namespace thalweg::capi {

constexpr int kRanks = 3;
using RankCalls = std::function<void(thalweg_communicator*, int rank)>;
using ChangeOptions = std::function<void(thalweg_options&)>;

// What thalweg_create() returns on each of the ranks goes to `created`, and the communicators to
// `calls`.
inline void create_on_ranks(const ChangeOptions& change, const std::function<void(int)>& created,
                            const RankCalls& calls) {
  const std::string store = net::free_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      thalweg_options options;
      thalweg_options_init(&options);
      options.rank = rank;
      options.size = kRanks;
      options.store = store.c_str();
      if (change) change(options);
      thalweg_communicator* all = nullptr;
      created(thalweg_create(&options, &all));
      if (all != nullptr && calls) calls(all, rank);
      thalweg_destroy(all);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void on_ranks(const RankCalls& calls, const ChangeOptions& change = {}) {
  create_on_ranks(
      change, [](int code) { EXPECT_EQ(code, THALWEG_OK) << thalweg_last_error(); }, calls);
}

}  // namespace thalweg::capi
