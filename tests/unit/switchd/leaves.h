// The switches of racks on loopback, and communicators whose sums they make.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "base/prng.h"
#include "net/ranks.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {

inline constexpr const char* kTwoRacks = "leaf-spine:racks=2,hosts=3,spines=1,host=1G,uplink=1G";
inline constexpr std::size_t kRackElements = 100'000;

// The leaves of a network, each a switch of its own.
struct Leaves {
  explicit Leaves(int count, std::uint32_t aggregators = 8192, int paths = 1) {
    for (int i = 0; i < count; ++i) daemons.push_back(start_switch(aggregators, 1, paths));
    for (const auto& daemon : daemons) addresses.push_back(daemon->control_address());
  }
  [[nodiscard]] std::string list() const {
    std::string text;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      text += fmt::format("{}leaf{}={}", i == 0 ? "" : ",", i, addresses[i]);
    }
    return text;
  }
  std::vector<std::unique_ptr<SwitchDaemon>> daemons;
  std::vector<std::string> addresses;
};

// The switch at the same addresses, which knows no job.
inline std::unique_ptr<SwitchDaemon> restarted(std::unique_ptr<SwitchDaemon> daemon) {
  SwitchConfig config;
  config.control = daemon->control_address();
  config.data = daemon->data_addresses().front();
  daemon.reset();
  auto fresh = SwitchDaemon::start(config);
  EXPECT_TRUE(fresh.ok()) << fresh.error().message();
  return fresh.ok() ? std::move(*fresh) : nullptr;
}

inline CommunicatorOptions over_leaves(const std::string& switches,
                                       const std::string& topology = kTwoRacks) {
  CommunicatorOptions options;
  options.transport = Transport::kAtp;
  options.atp_switch = switches;
  options.topology = topology;
  options.shared_memory = false;
  return options;
}

// Sums pseudorandom integers and compares the result with the serial sum.
inline void expect_exact_sum(const Communicator& all, std::uint64_t seed,
                             std::size_t elements = kRackElements) {
  const auto value = [&](int rank, std::size_t i) {
    const std::uint64_t mixed = mix_bits(seed * 64 + static_cast<std::uint64_t>(rank) + i * 4096);
    return static_cast<std::int32_t>(mixed) >> 6;
  };
  std::vector<std::int32_t> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = value(all.rank(), i);
  const Status status = all.allreduce(TensorSpan::of(values), {});
  ASSERT_TRUE(status.ok()) << status.error().message();
  for (std::size_t i = 0; i < elements; ++i) {
    std::int32_t sum = 0;
    for (int r = 0; r < all.size(); ++r) sum += value(r, i);
    ASSERT_EQ(values[i], sum) << "element " << i;
  }
}

// Creating a communicator of four ranks fails on each of them, with this cause.
inline void expect_four_refused(const CommunicatorOptions& common, const std::string& cause) {
  const std::string store = net::free_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = common;
      options.store = store;
      options.size = 4;
      options.rank = rank;
      const std::string message = message_of(Communicator::create(options));
      EXPECT_NE(message.find(cause), std::string::npos) << message;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline nlohmann::json ask_switch(const SwitchDaemon& daemon, const char* op) {
  net::SwitchClient client =
      std::move(*net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon()));
  return std::move(*client.ask({{"op", op}}, soon()));
}

// The sequences that the job has completed which the switch was given last.
inline std::uint64_t completed_at(const SwitchDaemon& daemon) {
  const nlohmann::json stats = ask_switch(daemon, "stats");
  if (stats.at("jobs").empty()) return 0;
  return stats.at("jobs").back().at("counters").at("completed").get<std::uint64_t>();
}

// A counter of the only job of a switch.
inline std::uint64_t counter_of(const SwitchDaemon& daemon, const char* name) {
  const nlohmann::json stats = ask_switch(daemon, "stats");
  EXPECT_EQ(stats.at("jobs").size(), 1U);
  return stats.at("jobs").at(0).at("counters").at(name).get<std::uint64_t>();
}

}  // namespace thalweg::switchd
