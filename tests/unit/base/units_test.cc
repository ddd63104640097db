#include "base/units.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace thalweg {
namespace {

TEST(ParseBytes, units__decimal_and_binary) {
  EXPECT_EQ(parse_bytes("97MB").value(), Bytes(97'000'000));
  EXPECT_EQ(parse_bytes("64KiB").value(), Bytes(65'536));
  EXPECT_EQ(parse_bytes("1.5 GiB").value(), Bytes(1'610'612'736));
  EXPECT_EQ(parse_bytes("0").value(), Bytes(0));
  EXPECT_EQ(parse_bytes("12B").value(), Bytes(12));
}

TEST(ParseBytes, bad__the_error_names_text_and_units) {
  for (const char* text :
       {"", "97", "97mb", "MB", "-1MB", "1e3MB", "97MB ", "nanMB", "infMB", "99999999TB", "0.1B"}) {
    const auto result = parse_bytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message().find(text), std::string::npos) << text;
    EXPECT_NE(result.error().message().find("KiB"), std::string::npos) << text;
  }
}

TEST(ParseBandwidth, spellings__the_same_rate) {
  for (const char* text : {"10G", "10Gbps", "10Gb/s", "10Gbit/s", "10000M", "10000000000bps"}) {
    EXPECT_EQ(parse_bandwidth(text).value(), Bandwidth::gbps(10)) << text;
  }
  EXPECT_EQ(parse_bandwidth("2.5G").value().bps(), 2'500'000'000);
  EXPECT_FALSE(parse_bandwidth("10").ok());
  EXPECT_FALSE(parse_bandwidth("10GB/s").ok());
  EXPECT_FALSE(parse_bandwidth("-1G").ok());
}

TEST(ParseDuration, units__exact) {
  EXPECT_EQ(parse_duration("85.2us").value(), Duration::nanoseconds(85'200));
  EXPECT_EQ(parse_duration("10ms").value(), Duration::milliseconds(10));
  EXPECT_EQ(parse_duration("1s").value().ps(), 1'000'000'000'000);
  EXPECT_FALSE(parse_duration("10").ok());
  EXPECT_FALSE(parse_duration("10 minutes").ok());
}

TEST(ToString, any_value__parses_back) {
  Prng prng(11);
  for (int i = 0; i < 10000; ++i) {
    // Up to 2^50: parsing goes through a double, which is exact there.
    const auto value = static_cast<std::int64_t>(prng.below(std::uint64_t{1} << prng.below(51)));
    EXPECT_EQ(parse_bytes(to_string(Bytes(value))).value(), Bytes(value));
    const Bandwidth rate = Bandwidth::bits_per_second(value);
    EXPECT_EQ(parse_bandwidth(to_string(rate)).value(), rate);
    const Duration duration = Duration::picoseconds(value);
    EXPECT_EQ(parse_duration(to_string(duration)).value(), duration);
  }
}

TEST(Bandwidth, transmission_time__exact_and_never_early) {
  EXPECT_EQ(Bandwidth::gbps(100).transmission_time(Bytes(1500)), Duration::nanoseconds(120));
  EXPECT_EQ(Bandwidth::gbps(100).transmission_time(Bytes(1)), Duration::picoseconds(80));
  EXPECT_EQ(Bandwidth::bits_per_second(3).transmission_time(Bytes(1)).ps(), 2'666'666'666'667);
}

TEST(ToHuman, three_digits) {
  EXPECT_EQ(to_human(Bytes(97'000'000)), "97.0 MB");
  EXPECT_EQ(to_human(Bytes(999)), "999 B");
  EXPECT_EQ(to_human(Duration::nanoseconds(1'234'567)), "1.23 ms");
}

}  // namespace
}  // namespace thalweg
