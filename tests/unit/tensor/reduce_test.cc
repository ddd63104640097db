#include "tensor/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "tensor/reference.h"

namespace thalweg::tensor {
namespace {

using reference::GuardedArray;
using ReduceValues = std::vector<std::uint64_t>;

// Which of the operands the result overwrites.
enum class Alias { kNone, kA, kB, kBoth };

ReduceValues expected(DType type, ReduceOp op, const ReduceValues& a, const ReduceValues& b) {
  ReduceValues result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    result[i] = reference::reduce(type, op, a[i], b[i]);
  }
  return result;
}

// Reduces a and b, which start `shifts` bytes off alignment, and compares with `wanted`.
testing::AssertionResult reduces_to(DType type, ReduceOp op, const ReduceValues& a,
                                    const ReduceValues& b, const ReduceValues& wanted, Alias alias,
                                    std::array<std::size_t, 3> shifts) {
  GuardedArray x(type, a, shifts[0]);
  GuardedArray y(type, b, shifts[1]);
  GuardedArray separate(type, ReduceValues(a.size(), 0x11), shifts[2]);
  GuardedArray& second = alias == Alias::kBoth ? x : y;
  GuardedArray& dst = alias == Alias::kNone ? separate : alias == Alias::kB ? y : x;
  reduce(type, op, dst.data(), x.data(), second.data(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (dst[i] != wanted[i]) {
      return testing::AssertionFailure()
             << simd_target() << ' ' << name_of(type) << ' ' << name_of(op) << " alias "
             << static_cast<int>(alias) << ", element " << i << " of " << a.size() << std::hex
             << ": 0x" << a[i] << ", 0x" << b[i] << " gave 0x" << dst[i] << ", not 0x" << wanted[i];
    }
  }
  if (!x.guards_intact() || !y.guards_intact() || !separate.guards_intact()) {
    return testing::AssertionFailure() << simd_target() << ' ' << name_of(type) << ' '
                                       << name_of(op) << " wrote outside of its result";
  }
  return testing::AssertionSuccess();
}

TEST(Reduce, targets__each_is_really_used) {
  std::set<std::string> seen;
  reference::for_each_target([&](std::int64_t target) {
    EXPECT_STREQ(simd_target(), hwy::TargetName(target));
    seen.insert(simd_target());
  });
  EXPECT_EQ(seen.size(), hwy::SupportedAndGeneratedTargets().size());
  EXPECT_TRUE(seen.contains(simd_target()));
}

TEST(Reduce, reduce__every_count_and_random_shifts) {
  constexpr std::uint64_t kSeed = 1;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  ReduceValues counts{4099};
  for (std::uint64_t count = 0; count <= 70; ++count) counts.push_back(count);
  for (const DType type : reference::all_types()) {
    for (const ReduceOp op : reference::all_ops()) {
      for (const std::uint64_t count : counts) {
        const ReduceValues a = reference::random_values(type, count, prng);
        const ReduceValues b = reference::random_values(type, count, prng);
        const ReduceValues wanted = expected(type, op, a, b);
        const ReduceValues wanted_squares = expected(type, op, a, a);
        reference::for_each_target([&](std::int64_t) {
          const std::array<std::size_t, 3> shifts{prng.below(64), prng.below(64), prng.below(64)};
          for (const Alias alias : {Alias::kNone, Alias::kA, Alias::kB}) {
            ASSERT_TRUE(reduces_to(type, op, a, b, wanted, alias, shifts));
          }
          ASSERT_TRUE(reduces_to(type, op, a, a, wanted_squares, Alias::kBoth, shifts));
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Reduce, reduce__every_misalignment_of_every_pointer) {
  constexpr std::uint64_t kSeed = 2;
  constexpr std::size_t kCount = 75;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Prng prng(kSeed);
  for (const DType type : reference::all_types()) {
    const ReduceValues a = reference::random_values(type, kCount, prng);
    const ReduceValues b = reference::random_values(type, kCount, prng);
    const ReduceValues wanted = expected(type, ReduceOp::kSum, a, b);
    reference::for_each_target([&](std::int64_t) {
      for (std::size_t i = 0; i < 512; ++i) {
        ASSERT_TRUE(reduces_to(type, ReduceOp::kSum, a, b, wanted, Alias::kNone,
                               {i / 64, i / 8 % 8, i % 8}));
      }
    });
    if (HasFatalFailure()) return;
  }
}

TEST(Reduce, reduce__every_pair_of_special_values) {
  for (const DType type : reference::all_types()) {
    ReduceValues a;
    ReduceValues b;
    for (const std::uint64_t x : reference::special_values(type)) {
      for (const std::uint64_t y : reference::special_values(type)) {
        a.push_back(x);
        b.push_back(y);
      }
    }
    for (const ReduceOp op : reference::all_ops()) {
      const ReduceValues wanted = expected(type, op, a, b);
      // The reference is commutative to the bit, so the kernels are too.
      ASSERT_EQ(wanted, expected(type, op, b, a));
      reference::for_each_target([&](std::int64_t) {
        ASSERT_TRUE(reduces_to(type, op, a, b, wanted, Alias::kNone, {0, 0, 0}));
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Every 16-bit pattern with partners that make rounding, overflow and underflow hard.
TEST(Reduce, reduce__every_16_bit_float) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const reference::FloatFormat format = reference::format_of(type);
    ReduceValues a(65536);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = i;
    for (const double partner : {0.0, 1.0, -0.3333, 0.00006103515625, 1e-7, 47.0, 65504.0, -3e-5}) {
      const ReduceValues b(a.size(), reference::encode(format, partner));
      for (const ReduceOp op : reference::all_ops()) {
        const ReduceValues wanted = expected(type, op, a, b);
        reference::for_each_target([&](std::int64_t) {
          ASSERT_TRUE(reduces_to(type, op, a, b, wanted, Alias::kA, {0, 0, 0}));
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Reduce, reduce__every_pair_of_8_bit_floats) {
  ReduceValues a(65536);
  ReduceValues b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = i / 256;
    b[i] = i % 256;
  }
  for (const DType type : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
    for (const ReduceOp op : reference::all_ops()) {
      const ReduceValues wanted = expected(type, op, a, b);
      ASSERT_EQ(wanted, expected(type, op, b, a));
      reference::for_each_target([&](std::int64_t) {
        ASSERT_TRUE(reduces_to(type, op, a, b, wanted, Alias::kNone, {0, 0, 0}));
      });
      if (HasFatalFailure()) return;
    }
  }
}

template <class T>
T reduce_one(DType type, ReduceOp op, T a, T b) {
  T result;
  reduce(type, op, &result, &a, &b, 1);
  return result;
}

TEST(Reduce, reduce__integers_wrap) {
  reference::for_each_target([](std::int64_t) {
    EXPECT_EQ(reduce_one<std::int8_t>(DType::kInt8, ReduceOp::kSum, 127, 1), -128);
    EXPECT_EQ(reduce_one<std::int8_t>(DType::kInt8, ReduceOp::kProduct, -128, -128), 0);
    EXPECT_EQ(reduce_one<std::int16_t>(DType::kInt16, ReduceOp::kProduct, 256, 255), -256);
    EXPECT_EQ(
        reduce_one(DType::kInt32, ReduceOp::kSum, std::numeric_limits<std::int32_t>::min(), -1),
        std::numeric_limits<std::int32_t>::max());
    EXPECT_EQ(reduce_one(DType::kInt64, ReduceOp::kProduct, std::int64_t{-3'000'000'007},
                         std::int64_t{3}),
              -9'000'000'021);
  });
}

TEST(Reduce, reduce__min_and_max_of_floats) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  reference::for_each_target([](std::int64_t) {
    EXPECT_TRUE(std::isnan(reduce_one(DType::kFloat32, ReduceOp::kMin, kNan, 1.0F)));
    EXPECT_TRUE(std::isnan(reduce_one(DType::kFloat32, ReduceOp::kMax, 1.0F, kNan)));
    EXPECT_EQ(reduce_one(DType::kFloat32, ReduceOp::kMin, -2.0F, -1.0F), -2.0F);
    EXPECT_TRUE(std::signbit(reduce_one(DType::kFloat64, ReduceOp::kMin, 0.0, -0.0)));
    EXPECT_FALSE(std::signbit(reduce_one(DType::kFloat64, ReduceOp::kMax, -0.0, 0.0)));
  });
}

// 65504 is the largest float16, its unit is 32: half a unit more is a tie, and goes to infinity.
TEST(Reduce, reduce__float16_overflow_and_ties) {
  static constexpr std::uint16_t kLargest = 0x7bff;
  reference::for_each_target([](std::int64_t) {
    const auto sum = [](std::uint16_t a, std::uint16_t b) {
      return reduce_one(DType::kFloat16, ReduceOp::kSum, a, b);
    };
    EXPECT_EQ(sum(kLargest, 0x4c00), 0x7c00);    // + 16
    EXPECT_EQ(sum(kLargest, 0x4bff), kLargest);  // + 15.99
    EXPECT_EQ(sum(0x6800, 0x3c00), 0x6800);      // 2048 + 1: the even one is below
    EXPECT_EQ(sum(0x6801, 0x3c00), 0x6802);      // 2050 + 1: above
    EXPECT_EQ(sum(0x0001, 0x0001), 0x0002);      // subnormals
  });
}

// 448 is the largest e4m3fn, its unit is 32; 57,344 is the largest e5m2, its unit is 8192.
TEST(Reduce, reduce__float8_overflow_and_ties) {
  reference::for_each_target([](std::int64_t) {
    const auto sum = [](DType type, std::uint8_t a, std::uint8_t b) {
      return reduce_one(type, ReduceOp::kSum, a, b);
    };
    const DType e4m3fn = DType::kFloat8E4m3fn;
    EXPECT_EQ(sum(e4m3fn, 0x38, 0x38), 0x40);  // 1 + 1
    EXPECT_EQ(sum(e4m3fn, 0x7e, 0x58), 0x7e);  // 448 + 16: a tie, and the even one is below
    EXPECT_EQ(sum(e4m3fn, 0x7e, 0x59), 0x7e);  // 448 + 18: 480 would be next, which is NaN
    EXPECT_EQ(sum(e4m3fn, 0xfe, 0xfe), 0xfe);  // -896 is too large
    EXPECT_EQ(sum(e4m3fn, 0x01, 0x01), 0x02);  // subnormals, of 2^-9
    EXPECT_EQ(sum(e4m3fn, 0xff, 0x38), 0x7f);  // NaN + 1
    const DType e5m2 = DType::kFloat8E5m2;
    EXPECT_EQ(sum(e5m2, 0x3c, 0x3c), 0x40);  // 1 + 1
    EXPECT_EQ(sum(e5m2, 0x7b, 0x6c), 0x7c);  // 57,344 + 4096: a tie, and the even one is infinity
    EXPECT_EQ(sum(e5m2, 0x7b, 0x6b), 0x7b);  // 57,344 + 3584
    EXPECT_EQ(sum(e5m2, 0xfb, 0xfb), 0xfc);  // negative infinity
    EXPECT_EQ(sum(e5m2, 0x7c, 0xfc), 0x7f);  // infinity - infinity
    EXPECT_EQ(sum(e5m2, 0x03, 0x01), 0x04);  // from subnormals, of 2^-16, to the least normal one
  });
}

TEST(Reduce, reduce__partial_overlap_is_a_bug) {
  std::array<float, 16> data{};
  EXPECT_DEATH(
      reduce(DType::kFloat32, ReduceOp::kSum, data.data() + 1, data.data(), data.data() + 1, 8),
      "overlaps the result in part");
  EXPECT_DEATH(
      reduce(DType::kFloat32, ReduceOp::kSum, data.data(), data.data(), data.data() + 7, 8),
      "overlaps the result in part");
}

}  // namespace
}  // namespace thalweg::tensor
