#include <gtest/gtest.h>

#include <array>

#include "tensor/reduce.h"
#include "tensor/reference.h"

namespace thalweg::tensor {
namespace {

using reference::GuardedArray;
using MeanValues = std::vector<std::uint64_t>;

testing::AssertionResult divides(DType type, const MeanValues& sums, std::int64_t contributions,
                                 std::size_t shift) {
  MeanValues wanted(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    wanted[i] = reference::mean(type, sums[i], contributions);
  }
  testing::AssertionResult result = testing::AssertionSuccess();
  reference::for_each_target([&](std::int64_t) {
    GuardedArray data(type, sums, shift);
    finish_mean(type, data.data(), sums.size(), contributions);
    for (std::size_t i = 0; i < sums.size() && result; ++i) {
      if (data[i] == wanted[i]) continue;
      result = testing::AssertionFailure()
               << simd_target() << ' ' << name_of(type) << " element " << i << " of " << sums.size()
               << ": 0x" << std::hex << sums[i] << std::dec << " / " << contributions << std::hex
               << " gave 0x" << data[i] << ", not 0x" << wanted[i];
    }
    if (!data.guards_intact()) {
      result = testing::AssertionFailure() << simd_target() << " wrote outside of its data";
    }
  });
  return result;
}

// Divisors at which the multiplier or the shift of the integer division changes, and divisors
// beyond the range of every type.
std::vector<std::int64_t> hard_divisors() {
  std::vector<std::int64_t> divisors{1, 3, 5, 6, 7, 10, 12, 100, 641, 1000, 1'000'000'007};
  for (int bit = 1; bit < 63; ++bit) {
    const std::int64_t power = std::int64_t{1} << bit;
    divisors.insert(divisors.end(), {power - 1, power, power + 1});
  }
  divisors.push_back(std::numeric_limits<std::int64_t>::max());
  return divisors;
}

TEST(FinishMean, finish_mean__every_count_and_shift) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  for (const DType type : reference::all_types()) {
    for (std::size_t count = 0; count <= 70; ++count) {
      const MeanValues sums = reference::random_values(type, count, prng);
      const auto contributions = static_cast<std::int64_t>(1 + prng.below(40));
      ASSERT_TRUE(divides(type, sums, contributions, count % 64));
    }
  }
}

TEST(FinishMean, finish_mean__hard_divisors) {
  constexpr std::uint64_t kSeed = 4;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  for (const DType type : reference::all_types()) {
    for (const std::int64_t contributions : hard_divisors()) {
      MeanValues sums = reference::random_values(type, 200, prng);
      // Multiples of the divisor and their neighbours, where a quotient that is off by one shows.
      for (std::size_t i = 0; i < 200; ++i) {
        const std::uint64_t multiple =
            prng.next() % 1000 * static_cast<std::uint64_t>(contributions);
        sums.push_back((multiple + prng.below(3) - 1) & reference::mask_of(type));
        sums.push_back((0 - multiple + prng.below(3) - 1) & reference::mask_of(type));
      }
      ASSERT_TRUE(divides(type, sums, contributions, 1));
    }
  }
}

TEST(FinishMean, finish_mean__every_int8_by_every_divisor) {
  MeanValues sums(256);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = i;
  for (std::int64_t contributions = 1; contributions <= 260; ++contributions) {
    ASSERT_TRUE(divides(DType::kInt8, sums, contributions, 0));
  }
}

// The division by one is the conversion to float32 and back.
TEST(FinishMean, finish_mean__every_8_bit_float_by_every_divisor) {
  MeanValues sums(256);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = i;
  for (const DType type : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
    for (std::int64_t contributions = 1; contributions <= 260; ++contributions) {
      ASSERT_TRUE(divides(type, sums, contributions, 0));
    }
  }
}

TEST(FinishMean, finish_mean__every_16_bit_value) {
  MeanValues sums(65536);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = i;
  for (const DType type : {DType::kInt16, DType::kFloat16, DType::kBFloat16}) {
    for (const std::int64_t contributions : {2, 3, 7, 8, 10, 48, 1000, 32767, 32768, 70000}) {
      ASSERT_TRUE(divides(type, sums, contributions, 0));
    }
  }
}

TEST(FinishMean, finish_mean__integers_truncate_toward_zero) {
  reference::for_each_target([](std::int64_t) {
    std::array<std::int32_t, 4> data{7, -7, 1, -1};
    finish_mean(DType::kInt32, data.data(), data.size(), 2);
    EXPECT_EQ(data, (std::array<std::int32_t, 4>{3, -3, 0, 0}));
  });
}

TEST(FinishMean, finish_mean__three_steps_then_one_division) {
  reference::for_each_target([](std::int64_t) {
    std::array<double, 3> sum{1, 2, 3};
    const std::array<double, 3> more{0.5, 1, 1.5};
    for (int step = 0; step < 3; ++step) {
      reduce(DType::kFloat64, ReduceOp::kMean, sum.data(), sum.data(), more.data(), sum.size());
    }
    finish_mean(DType::kFloat64, sum.data(), sum.size(), 4);
    EXPECT_EQ(sum, (std::array<double, 3>{0.625, 1.25, 1.875}));
  });
}

TEST(FinishMean, finish_mean__without_contributions_is_a_bug) {
  std::array<float, 1> data{};
  EXPECT_DEATH(finish_mean(DType::kFloat32, data.data(), 1, 0), "a mean of 0 contributions");
}

}  // namespace
}  // namespace thalweg::tensor
