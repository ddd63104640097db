#include "tensor/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tensor/reference.h"

namespace thalweg::tensor {
namespace {

using reference::GuardedArray;
using Values = std::vector<std::uint64_t>;

constexpr std::array kTypes{DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::size_t blocks_of(std::size_t count, std::size_t block) { return (count + block - 1) / block; }

bool is_finite(DType type, std::uint64_t bits) {
  return std::abs(reference::decode(reference::format_of(type), bits)) < std::exp2(kMostExponent);
}

// Random elements. With `finite`, those that would make a block kNotFinite are 0.
Values numbers(DType type, std::size_t count, bool finite, Prng& prng) {
  Values values = reference::random_values(type, count, prng);
  for (std::uint64_t& value : values) {
    if (finite && !is_finite(type, value)) value = 0;
  }
  return values;
}

std::vector<BlockExponent> exponents_of(DType type, const Values& values, std::size_t block,
                                        std::size_t shift = 0) {
  GuardedArray array(type, values, shift);
  std::vector<BlockExponent> exponents(blocks_of(values.size(), block));
  block_exponents(type, array.data(), values.size(), block, exponents);
  return exponents;
}

// One worker's elements as integers; misfits are counted.
std::vector<std::int32_t> fixed(DType type, const Values& values, std::size_t block,
                                const std::vector<BlockExponent>& exponents, int contributions,
                                std::size_t& misfits, std::size_t shift = 0) {
  GuardedArray array(type, values, shift);
  std::vector<std::int32_t> out(values.size());
  misfits += to_fixed_point(type, array.data(), values.size(), block, exponents, contributions,
                            out.data());
  return out;
}

Values floats(DType type, const std::vector<std::int32_t>& integers, std::size_t block,
              const std::vector<BlockExponent>& exponents, int contributions,
              std::size_t shift = 0) {
  GuardedArray array(type, Values(integers.size()), shift);
  from_fixed_point(type, integers.data(), integers.size(), block, exponents, contributions,
                   array.data());
  EXPECT_TRUE(array.guards_intact());
  Values out(integers.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = array[i];
  return out;
}

// What single blocks need is their exponent, but for blocks of zeros.
void expect_needed(DType type, const Values& values, const std::vector<BlockExponent>& exponents,
                   std::size_t block) {
  const std::uint64_t magnitude = (std::uint64_t{1} << (8 * size_of(type) - 1)) - 1;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * block);
    const Values own(
        begin, begin + static_cast<std::ptrdiff_t>(std::min(block, values.size() - i * block)));
    GuardedArray array(type, own, i % 7);
    const bool zeros =
        std::ranges::all_of(own, [&](std::uint64_t bits) { return (bits & magnitude) == 0; });
    const BlockExponent needed = needed_exponent(type, array.data(), own.size());
    EXPECT_EQ(needed, zeros ? kNoExponent : exponents[i]) << name_of(type);
    EXPECT_TRUE(is_needed_exponent(needed));
  }
}

TEST(FixedPoint, exponent__is_the_least_above_every_element) {
  constexpr std::uint64_t kSeed = 1;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  for (const DType type : kTypes) {
    for (std::size_t count = 0; count < 150; ++count) {
      const Values values = numbers(type, count, prng.chance(0.8), prng);
      const std::size_t block = 1 + prng.below(70);
      double most = 0;
      std::vector<BlockExponent> wanted;
      for (std::size_t i = 0; i < count; ++i) {
        if (i % block == 0) most = 0;
        const double value = reference::decode(reference::format_of(type), values[i]);
        most = std::isnan(value) ? std::numeric_limits<double>::infinity()
                                 : std::max(most, std::abs(value));
        if (i + 1 < count && (i + 1) % block != 0) continue;
        const bool finite = most < std::exp2(kMostExponent);
        const auto least = [&] {
          const int above = most == 0 ? kLeastExponent : std::ilogb(most) + 1;
          return static_cast<BlockExponent>(std::max<int>(kLeastExponent, above));
        };
        wanted.push_back(finite ? least() : kNotFinite);
      }
      reference::for_each_target([&](std::int64_t) {
        EXPECT_EQ(exponents_of(type, values, block, prng.below(64)), wanted) << name_of(type);
        expect_needed(type, values, wanted, block);
      });
    }
  }
}

// The integer that one element becomes, computed in doubles.
std::int32_t nearest(double value, BlockExponent exponent, int contributions) {
  const double largest = std::exp2(31 - std::ceil(std::log2(contributions))) - 1;
  const double integer = std::nearbyint(value / fixed_point_quantum(exponent, contributions));
  return static_cast<std::int32_t>(std::clamp(integer, -largest, largest));
}

// Compares the sum of all workers, through integers and back, with the sum of doubles.
TEST(FixedPoint, sum__is_within_the_bound_and_exact_in_integers) {
  constexpr std::uint64_t kSeed = 2;
  Prng prng(kSeed);
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    const DType type = kTypes[prng.below(kTypes.size())];
    const reference::FloatFormat format = reference::format_of(type);
    const int workers = static_cast<int>(1 + prng.below(round % 10 == 0 ? 300 : 20));
    const std::size_t count = prng.below(100);
    const std::size_t block = 1 + prng.below(64);
    std::vector<Values> all;
    std::vector<BlockExponent> agreed(blocks_of(count, block), kLeastExponent);
    for (int w = 0; w < workers; ++w) {
      all.push_back(numbers(type, count, true, prng));
      const auto own = exponents_of(type, all.back(), block);
      for (std::size_t b = 0; b < own.size(); ++b) agreed[b] = std::max(agreed[b], own[b]);
    }
    std::vector<std::int64_t> exact(count, 0);
    std::vector<double> real(count, 0);
    std::size_t misfits = 0;
    for (const Values& values : all) {
      const auto integers = fixed(type, values, block, agreed, workers, misfits, prng.below(64));
      for (std::size_t i = 0; i < count; ++i) {
        const double value = reference::decode(format, values[i]);
        ASSERT_EQ(integers[i], nearest(value, agreed[i / block], workers)) << value;
        exact[i] += integers[i];
        real[i] += value;
      }
    }
    EXPECT_EQ(misfits, 0U);
    std::vector<std::int32_t> sums(count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_LE(std::abs(exact[i]), std::numeric_limits<std::int32_t>::max());
      sums[i] = static_cast<std::int32_t>(exact[i]);
    }
    const Values back = floats(type, sums, block, agreed, workers);
    for (std::size_t i = 0; i < count; ++i) {
      const double quantum = fixed_point_quantum(agreed[i / block], workers);
      const double each = workers <= 128 ? quantum / 2 : quantum;
      const double before_rounding = static_cast<double>(sums[i]) * quantum;
      // Sums of doubles have an error too, below 2^-20 quanta.
      EXPECT_LE(std::abs(before_rounding - real[i]), workers * each * (1 + 1e-6));
      const auto once = static_cast<float>(before_rounding);
      EXPECT_EQ(back[i], reference::encode(format, double{once})) << before_rounding;
    }
  }
}

TEST(FixedPoint, conversion__is_the_same_on_every_target) {
  constexpr std::uint64_t kSeed = 3;
  constexpr std::size_t kCount = 203;
  constexpr std::size_t kBlock = 64;
  constexpr int kWorkers = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  for (const DType type : kTypes) {
    const Values values = numbers(type, kCount, false, prng);
    const std::vector<BlockExponent> exponents{3, kNotFinite, -20, kMostExponent};
    std::size_t misfits = 0;
    const auto integers = fixed(type, values, kBlock, exponents, kWorkers, misfits);
    const auto back = floats(type, integers, kBlock, exponents, kWorkers);
    reference::for_each_target([&](std::int64_t target) {
      std::size_t again = 0;
      EXPECT_EQ(fixed(type, values, kBlock, exponents, kWorkers, again, prng.below(64)), integers)
          << hwy::TargetName(target);
      EXPECT_EQ(again, misfits);
      EXPECT_EQ(floats(type, integers, kBlock, exponents, kWorkers, prng.below(64)), back);
    });
  }
}

TEST(FixedPoint, elements_beyond_the_exponent__are_cut_off_and_counted) {
  const std::vector<float> values{1, -1, 0.999F, 4e30F, -4e30F, NAN, INFINITY, -INFINITY, 0};
  constexpr int kWorkers = 8;
  constexpr std::int32_t kLargest = (1 << 28) - 16;  // the largest float32 below 2^28
  const std::vector<BlockExponent> exponent{0};
  std::vector<std::int32_t> out(values.size());
  EXPECT_EQ(to_fixed_point(DType::kFloat32, values.data(), values.size(), values.size(), exponent,
                           kWorkers, out.data()),
            7U);
  const std::int32_t near_one = nearest(double{0.999F}, 0, kWorkers);
  EXPECT_EQ(out, (std::vector<std::int32_t>{kLargest, -kLargest, near_one, kLargest, -kLargest, 0,
                                            kLargest, -kLargest, 0}));
}

TEST(FixedPoint, block_with_an_infinity__is_nan_at_every_worker_and_others_are_not) {
  constexpr std::size_t kBlock = 2;
  std::vector<float> values{1, INFINITY, 2, 3};
  std::vector<BlockExponent> exponents(2);
  block_exponents(DType::kFloat32, values.data(), values.size(), kBlock, exponents);
  ASSERT_EQ(exponents, (std::vector<BlockExponent>{kNotFinite, 2}));
  std::vector<std::int32_t> integers(values.size(), 7);
  EXPECT_EQ(to_fixed_point(DType::kFloat32, values.data(), values.size(), kBlock, exponents, 2,
                           integers.data()),
            0U);
  EXPECT_EQ(integers[0], 0);
  EXPECT_EQ(integers[1], 0);
  from_fixed_point(DType::kFloat32, integers.data(), values.size(), kBlock, exponents, 2,
                   values.data());
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_EQ(values[2], 2);
  EXPECT_EQ(values[3], 3);
}

TEST(FixedPointDeathTest, wrong_use__is_a_bug) {
  std::vector<double> data(4);
  std::vector<BlockExponent> exponents(2);
  std::vector<std::int32_t> out(4);
  EXPECT_DEATH(block_exponents(DType::kFloat64, data.data(), 4, 2, exponents), "float64");
  EXPECT_DEATH(block_exponents(DType::kFloat32, data.data(), 4, 4, exponents), "2 exponents");
  EXPECT_DEATH(to_fixed_point(DType::kFloat32, data.data(), 4, 2, exponents, 0, out.data()),
               "0 contributions");
}

}  // namespace
}  // namespace thalweg::tensor
