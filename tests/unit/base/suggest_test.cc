#include "base/suggest.h"

#include <gtest/gtest.h>

#include <array>

#include "base/units.h"

namespace thalweg {
namespace {

const std::vector<std::string> kSchemes{"ps", "ring", "butterfly", "rat", "rat-weighted", "direct"};

TEST(Suggest, edit_distance__counts_half_edits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("ring", "ring"), 0U);
  EXPECT_EQ(edit_distance("", "ring"), 8U);
  EXPECT_EQ(edit_distance("rng", "ring"), 2U);
  EXPECT_EQ(edit_distance("riing", "ring"), 2U);
  EXPECT_EQ(edit_distance("rong", "ring"), 2U);
  EXPECT_EQ(edit_distance("rign", "ring"), 2U);  // neighbours swapped
  EXPECT_EQ(edit_distance("mb", "MB"), 2U);      // two letters of the other case
  EXPECT_EQ(edit_distance("kitten", "sitting"), 6U);
}

TEST(Suggest, edit_distance__is_the_same_both_ways) {
  for (const std::string& a : kSchemes) {
    for (const std::string& b : kSchemes) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a));
  }
}

TEST(Suggest, nearest__finds_what_was_meant) {
  EXPECT_EQ(nearest("rign", kSchemes), "ring");
  EXPECT_EQ(nearest("buterfyl", kSchemes), "butterfly");
  EXPECT_EQ(nearest("RAT", kSchemes), "rat");
  EXPECT_EQ(nearest("rat-wieghted", kSchemes), "rat-weighted");
  EXPECT_EQ(nearest("butter", kSchemes), "butterfly");  // its beginning
}

TEST(Suggest, nearest__none) {
  EXPECT_EQ(nearest("", kSchemes), std::nullopt);
  EXPECT_EQ(nearest("ring", kSchemes), std::nullopt);  // known
  EXPECT_EQ(nearest("tree", kSchemes), std::nullopt);
  EXPECT_EQ(nearest("zz", kSchemes), std::nullopt);
  EXPECT_EQ(nearest("h", std::vector<std::string>{"s", "ms"}), std::nullopt);  // one edit, but "h"
  EXPECT_EQ(nearest(std::string(kMaxSuggestLength + 1, 'r'), kSchemes), std::nullopt);
}

TEST(Suggest, nearest__the_same_first_letter_decides) {
  EXPECT_EQ(nearest("M", std::vector<std::string>{"B", "MB"}), "MB");
  EXPECT_EQ(nearest("mb", std::vector<std::string>{"TB", "GB", "MB"}), "MB");
}

TEST(Suggest, did_you_mean__ends_an_error) {
  EXPECT_EQ(did_you_mean("rign", kSchemes), "; did you mean 'ring'?");
  EXPECT_EQ(did_you_mean("xylophone", kSchemes), "");
  EXPECT_EQ(did_you_mean("shwo", std::array{"show", "best"}), "; did you mean 'show'?");
}

TEST(Suggest, units__are_suggested) {
  const auto ends_with = [](const auto& result, std::string_view end) {
    return !result.ok() && result.error().message().ends_with(end);
  };
  EXPECT_TRUE(ends_with(parse_bytes("97M"), "did you mean '97MB'?"));
  EXPECT_TRUE(ends_with(parse_bytes("1.5 mib"), "did you mean '1.5MiB'?"));
  EXPECT_TRUE(ends_with(parse_bandwidth("10gbps"), "did you mean '10Gbps'?"));
  EXPECT_TRUE(ends_with(parse_duration("10uS"), "did you mean '10us'?"));
  EXPECT_TRUE(ends_with(parse_duration("1h"), "ms or s"));
  EXPECT_TRUE(ends_with(parse_bytes("97"), "or TiB"));
}

}  // namespace
}  // namespace thalweg
