#include "tensor/saturating_add.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/prng.h"

namespace thalweg::tensor {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();

TEST(SaturatingAdd, add__random_numbers_as_in_64_bits) {
  Prng prng(6);
  for (std::size_t count = 0; count < 150; ++count) {
    for (const bool small : {true, false}) {
      std::vector<std::int32_t> dst(count);
      // One byte off alignment.
      std::vector<std::byte> b(count * sizeof(std::int32_t) + 1);
      std::vector<std::int32_t> wanted(count);
      bool saturated = false;
      for (std::size_t i = 0; i < count; ++i) {
        const int shift = small ? 2 : 0;
        dst[i] = static_cast<std::int32_t>(prng.next()) >> shift;
        const std::int32_t term = static_cast<std::int32_t>(prng.next()) >> shift;
        std::memcpy(&b[1 + i * sizeof(term)], &term, sizeof(term));
        const std::int64_t sum = std::int64_t{dst[i]} + term;
        saturated = saturated || sum > kMost || sum < kLeast;
        wanted[i] = static_cast<std::int32_t>(std::clamp(sum, kLeast, kMost));
      }
      EXPECT_EQ(add_saturating(dst.data(), b.data() + 1, count), saturated) << count;
      EXPECT_EQ(dst, wanted) << count;
    }
  }
}

TEST(SaturatingAdd, add__ends_of_the_range) {
  for (const auto& [a, b, sum, saturated] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>{kMost, 0, kMost, false},
        {kMost, 1, kMost, true},
        {kMost - 1, 1, kMost, false},
        {kLeast, -1, kLeast, true},
        {kLeast, 0, kLeast, false},
        {kLeast, kLeast, kLeast, true},
        {kLeast, kMost, -1, false}}) {
    auto dst = static_cast<std::int32_t>(a);
    const auto term = static_cast<std::int32_t>(b);
    EXPECT_EQ(add_saturating(&dst, reinterpret_cast<const std::byte*>(&term), 1), saturated);
    EXPECT_EQ(dst, sum);
  }
}

}  // namespace
}  // namespace thalweg::tensor
