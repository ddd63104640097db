// What tests of corrupted paths share: the calls that they make, and how these ended.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/prng.h"
#include "net/test_environment.h"

namespace thalweg::net {

// The number of sums of each cell of the table: THALWEG_CORRUPTED_SUMS, or this.
inline int corrupted_sums(int by_default) {
  const char* given = std::getenv("THALWEG_CORRUPTED_SUMS");
  return given != nullptr ? std::atoi(given) : by_default;
}

class Tally {
 public:
  int right = 0;
  int wrong = 0;
  std::vector<Error> errors;

  // Called by every rank: makes so many allreduces, or fewer if one fails. Every rank knows all
  // ranks' elements.
  void reduce(Communicator& all, int calls, std::chrono::milliseconds deadline) {
    for (int call = 0; call < calls; ++call) {
      std::vector<std::int32_t> values(call % 20 == 10 ? 200'000 : 16'384);
      std::vector<std::int32_t> sums(values.size(), 0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = element(all.rank(), call, i);
        for (int r = 0; r < all.size(); ++r) sums[i] += element(r, call, i);
      }
      const Status status = all.allreduce(TensorSpan::of(values), {.deadline = deadline});
      const std::lock_guard lock(mutex_);
      if (!status.ok()) {
        errors.push_back(status.error());
        return;
      }
      (values == sums ? right : wrong) += 1;
    }
  }
  [[nodiscard]] bool is_over(int most, bool until_wrong) const {
    const int calls = right + wrong + static_cast<int>(errors.size());
    return calls >= most || (until_wrong && wrong > 0);
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} calls right, {} failed, {} wrong", right, errors.size(), wrong);
  }

 private:
  static std::int32_t element(int rank, int call, std::size_t index) {
    const auto place = static_cast<std::uint64_t>(call) << 32U | index << 4U;
    return static_cast<std::int32_t>(mix_bits(place | static_cast<unsigned>(rank)) % 100'000'000);
  }

  std::mutex mutex_;
};

}  // namespace thalweg::net
