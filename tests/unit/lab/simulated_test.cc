// What the simulator predicts for calls on sockets: ranks that forward packets come close to the
// link's limit, also with tensors of few packets.
#include "lab/bench/allreduce/simulated.h"

#include <gtest/gtest.h>

#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

TEST(SimulatedCall, small_tensors__near_the_limit_of_the_link) {
  constexpr double kHeadersAndSteps = 1.2;
  const topology::Topology network =
      topology::topology_from_shorthand("single-switch:hosts=4,host=200M,delay=50us").value();
  for (const char* transport : {"tcp", "dlcp"}) {
    for (const char* scheme : {"rat", "ring", "ps", "halving-doubling"}) {
      for (const Bytes size : {Bytes(256 * 1024), Bytes(1024 * 1024)}) {
        // A rank sends 2(n − 1)/n of the tensor.
        const double limit_ms = 1.5 * static_cast<double>(size.count()) * 8 / 200e6 * 1e3;
        const auto time =
            allreduce::simulate(network, {.transport = transport, .scheme = scheme, .size = size});
        ASSERT_TRUE(time.ok()) << time.error().message();
        EXPECT_GT(time->ms(), limit_ms) << scheme << " over " << transport;
        EXPECT_LT(time->ms(), limit_ms * kHeadersAndSteps) << scheme << " over " << transport;
      }
    }
  }
}

// Without selective acknowledgements most calls would wait for the timer once, 200 ms, and take
// half as long again as the limit.
TEST(SimulatedCall, tcp_under_loss__does_not_wait_for_the_timer) {
  constexpr double kRecovery = 1.3;
  const topology::Topology network =
      topology::topology_from_shorthand("single-switch:hosts=8,host=100M,delay=100us").value();
  const Bytes size(4 << 20);
  const double limit_ms = 1.75 * static_cast<double>(size.count()) * 8 / 100e6 * 1e3;
  const auto time = allreduce::simulate(
      network, {.transport = "tcp", .scheme = "ring", .size = size, .loss = 0.005});
  ASSERT_TRUE(time.ok()) << time.error().message();
  EXPECT_GT(time->ms(), limit_ms);
  EXPECT_LT(time->ms(), limit_ms * kRecovery);
}

}  // namespace
}  // namespace thalweg::lab
