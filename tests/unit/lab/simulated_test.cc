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

}  // namespace
}  // namespace thalweg::lab
