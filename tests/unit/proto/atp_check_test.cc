#include "proto/atp/check.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"
#include "tensor/fixed_point.h"

namespace thalweg::proto::atp_check_test {
namespace {

constexpr std::uint16_t kElements = 20;
constexpr std::array<std::uint8_t, 2> kGroups = {3, 2};

struct Sum {
  wire::AtpHeader header;
  std::vector<std::int32_t> elements = std::vector<std::int32_t>(kElements);
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(elements));
  }
};

// What a worker sends. With `needs` it needs that exponent.
Sum contribution(const AtpChecker& checker, std::uint8_t group, unsigned index,
                 std::int8_t needs = tensor::kNoExponent, std::uint64_t sequence = 7) {
  Sum one;
  one.header.job = 5;
  one.header.sequence = sequence;
  one.header.group = group;
  one.header.group_count = kGroups.size();
  one.header.fan_in = kGroups[group];
  one.header.workers = wire::atp_bit(index);
  one.header.elements = kElements;
  one.header.needed_exponent = needs;
  Prng prng(group * 100 + index + 1);
  for (std::int32_t& each : one.elements) each = static_cast<std::int32_t>(prng.next()) >> 4;
  one.header.check = checker.word_of(one.header, one.bytes());
  return one;
}

// The sum of both, under the header of the first.
Sum operator+(Sum a, const Sum& b) {
  for (std::size_t i = 0; i < kElements; ++i) a.elements[i] += b.elements[i];
  a.header.check += b.header.check;
  a.header.needed_exponent = std::max(a.header.needed_exponent, b.header.needed_exponent);
  return a;
}

Sum all_of(const AtpChecker& checker, std::int8_t last_needs = tensor::kNoExponent) {
  Sum sum = contribution(checker, 0, 0) + contribution(checker, 0, 1) +
            contribution(checker, 0, 2) + contribution(checker, 1, 0) +
            contribution(checker, 1, 1, last_needs);
  sum.header.kind = wire::AtpKind::kParameter;
  sum.header.workers = 0;
  sum.header.groups = 1;  // for whom it is: that does not matter
  return sum;
}

bool holds(const AtpChecker& checker, const Sum& sum) {
  return checker.holds(sum.header, sum.bytes());
}

// Worker 1 of group 0 is beside the first of two servers, which has the even sequences.
TEST(AtpChecker, holds__a_group_without_the_worker_that_its_server_adds) {
  const AtpChecker checker(kGroups, true, {AtpSeat{0, 1}, std::nullopt});
  for (const std::uint64_t sequence : {std::uint64_t{6}, std::uint64_t{7}}) {
    Sum without = contribution(checker, 0, 0, tensor::kNoExponent, sequence) +
                  contribution(checker, 0, 2, tensor::kNoExponent, sequence);
    Sum with = without + contribution(checker, 0, 1, tensor::kNoExponent, sequence);
    for (Sum* sum : {&without, &with}) {
      sum->header.workers = 0;
      sum->header.groups = 0b01;
    }
    EXPECT_EQ(holds(checker, without), sequence == 6);
    EXPECT_EQ(holds(checker, with), sequence == 7);
  }
}

TEST(AtpChecker, holds__contributions_parts_of_groups_and_sums_of_all) {
  const AtpChecker checker(kGroups);
  EXPECT_TRUE(holds(checker, contribution(checker, 1, 1)));
  Sum part = contribution(checker, 0, 2) + contribution(checker, 0, 0);
  part.header.workers = 0b101;
  EXPECT_TRUE(holds(checker, part));
  Sum group_and_part =
      contribution(checker, 1, 0) + contribution(checker, 1, 1) + contribution(checker, 0, 1);
  group_and_part.header.group = 0;
  group_and_part.header.workers = 0b010;
  group_and_part.header.groups = 0b10;
  EXPECT_TRUE(holds(checker, group_and_part));
  EXPECT_TRUE(holds(checker, all_of(checker)));
}

TEST(AtpChecker, holds__not_if_a_contribution_is_missing_twice_or_of_another_sequence) {
  const AtpChecker checker(kGroups);
  Sum part = contribution(checker, 0, 2) + contribution(checker, 0, 0);
  part.header.workers = 0b100;
  EXPECT_FALSE(holds(checker, part));
  part.header.workers = 0b111;
  EXPECT_FALSE(holds(checker, part));
  part = part + contribution(checker, 0, 0);
  part.header.workers = 0b101;
  EXPECT_FALSE(holds(checker, part));
  part = contribution(checker, 0, 2) + contribution(checker, 0, 0, tensor::kNoExponent, 8);
  part.header.workers = 0b101;
  EXPECT_FALSE(holds(checker, part));
}

TEST(AtpChecker, holds__not_if_anything_changed) {
  const AtpChecker checker(kGroups);
  const Sum good = all_of(checker);
  Sum bad = good;
  bad.elements[3] ^= 1 << 31;
  EXPECT_FALSE(holds(checker, bad));
  bad.header.saturated = true;  // that is an error anyway
  EXPECT_TRUE(holds(checker, bad));
  for (int bit = 0; bit < 64; ++bit) {
    bad = good;
    bad.header.check ^= std::uint64_t{1} << bit;
    EXPECT_FALSE(holds(checker, bad)) << bit;
  }
  bad = good;
  ++bad.header.job;
  EXPECT_FALSE(holds(checker, bad));
  bad = good;
  --bad.header.exponent;
  EXPECT_FALSE(holds(checker, bad));
}

// A switch that forgets what a worker needs must not make others use elements that did not fit.
TEST(AtpChecker, holds__only_if_the_header_says_whether_elements_fit) {
  const AtpChecker checker(kGroups);
  for (const std::int8_t needs : {std::int8_t{1}, tensor::kNotFinite}) {
    Sum sum = all_of(checker, needs);
    EXPECT_TRUE(holds(checker, sum));
    sum.header.needed_exponent = 0;
    EXPECT_FALSE(holds(checker, sum));
  }
  Sum sum = all_of(checker, 0);
  EXPECT_TRUE(holds(checker, sum));
  sum.header.needed_exponent = 3;
  EXPECT_FALSE(holds(checker, sum));
}

TEST(AtpChecker, weigh__off_leaves_out_the_elements_only) {
  const AtpChecker checker(kGroups, false);
  Sum sum = all_of(checker);
  sum.elements[3] ^= 1;
  EXPECT_TRUE(holds(checker, sum));
  ++sum.header.sequence;
  EXPECT_FALSE(holds(checker, sum));
}

}  // namespace
}  // namespace thalweg::proto::atp_check_test
