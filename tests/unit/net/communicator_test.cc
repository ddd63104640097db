#include <thalweg/communicator.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

TEST(Communicator, allreduce__sums_over_all_ranks) {
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(size);
    run_ranks(size, {}, [&](Communicator& all) {
      for (const std::size_t elements : {1U, 5U, 1000U, 300'000U}) {
        std::vector<std::int64_t> values(elements, all.rank() + 1);
        std::iota(values.begin(), values.end(), std::int64_t{all.rank()} * 1000);
        const Status status = all.allreduce(TensorSpan::of(values), {});
        ASSERT_TRUE(status.ok()) << status.error().message();
        for (std::size_t i = 0; i < elements; ++i) {
          const auto n = static_cast<std::int64_t>(all.size());
          ASSERT_EQ(values[i], n * static_cast<std::int64_t>(i) + n * (n - 1) / 2 * 1000);
        }
      }
    });
  }
}

}  // namespace
}  // namespace thalweg::net
