// A parameter server and its workers in one process, over loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/parameter_client.h>

#include "net/dlcp/test_faults.h"
#include "ps/server.h"

namespace thalweg::ps {

using Values = std::vector<float>;

inline PsConfig ps_config(int workers, Transport transport = Transport::kTcp) {
  PsConfig config;
  config.listen = "127.0.0.1:0";
  config.transport = transport;
  config.parameters.workers = workers;
  config.parameters.rate = 1;
  return config;
}

// `lose`: which of its packets the server loses over DLCP.
inline std::unique_ptr<ParameterServer> start_server(const PsConfig& config,
                                                     const net::LosePacket& lose = {}) {
  const net::ScopedLoss loss(lose);
  Result<std::unique_ptr<ParameterServer>> server = ParameterServer::start(config);
  EXPECT_TRUE(server.ok()) << server.error().message();
  return std::move(*server);
}

inline ParameterClient connect(const ParameterServer& server, std::uint32_t worker,
                               const net::LosePacket& lose = {}) {
  const net::ScopedLoss loss(lose);
  Result<ParameterClient> client =
      ParameterClient::connect({.server = server.address(), .worker = worker});
  EXPECT_TRUE(client.ok()) << client.error().message();
  return std::move(*client);
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.error().message();
}

// Runs part(w) for every worker w, each in a thread of its own.
inline void together(std::uint32_t workers, const std::function<void(std::uint32_t)>& part) {
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < workers; ++w) threads.emplace_back(part, w);
  for (std::thread& thread : threads) thread.join();
}

// A gradient that floats and fixed point represent exactly, as well as the sum of a few of them.
inline Values gradient_of(std::uint32_t worker, int step, std::size_t elements) {
  Values gradient(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto mixed = (i * 31 + worker * 17 + static_cast<std::size_t>(step) * 7) % 64;
    gradient[i] = static_cast<float>(mixed) / 8 - 4;
  }
  return gradient;
}

// The value after this many steps with the mean of all workers' gradients, from 0, at rate 1.
inline Values value_after(int steps, std::uint32_t workers, std::size_t elements) {
  Values value(elements);
  for (int step = 0; step < steps; ++step) {
    Values sum(elements);
    for (std::uint32_t w = 0; w < workers; ++w) {
      const Values gradient = gradient_of(w, step, elements);
      for (std::size_t i = 0; i < elements; ++i) sum[i] += gradient[i];
    }
    for (std::size_t i = 0; i < elements; ++i) {
      value[i] -= sum[i] / static_cast<float>(workers);
    }
  }
  return value;
}

// Pushes and pulls for one worker in the steps [first, last).
inline void train(ParameterClient& client, std::uint32_t worker, int first, int last,
                  Values& values) {
  for (int step = first; step < last; ++step) {
    expect_ok(client.push("w", gradient_of(worker, step, values.size())));
    const auto steps = client.pull("w", values);
    ASSERT_TRUE(steps.ok()) << steps.error().message();
    EXPECT_EQ(*steps, static_cast<std::uint64_t>(step + 1));
  }
}

// Trains from 0 with all workers and expects the exact value at each.
inline void expect_exact_training(const ParameterServer& server, std::uint32_t workers, int steps,
                                  std::size_t elements, const net::LosePacket& lose = {}) {
  std::vector<Values> results(workers, Values(elements));
  together(workers, [&](std::uint32_t w) {
    ParameterClient client = connect(server, w, lose);
    expect_ok(client.init("w", results[w]));
    train(client, w, 0, steps, results[w]);
  });
  const Values wanted = value_after(steps, workers, elements);
  for (const Values& result : results) EXPECT_EQ(result, wanted);
}

}  // namespace thalweg::ps
