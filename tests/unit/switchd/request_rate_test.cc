// How often clients may ask a switch, and when the switch draws a token by itself.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <string>

#include "base/messages.h"
#include "switchd/config.h"
#include "switchd/request_rate.h"

namespace thalweg::switchd {
namespace {

int admitted(RequestRate& rate, const std::string& address, Time now, int requests) {
  int count = 0;
  for (int i = 0; i < requests; ++i) count += rate.admit(address, now) ? 1 : 0;
  return count;
}

TEST(RequestRate, admit__so_many_a_second_for_each_address) {
  RequestRate rate(10);
  Time now = Time::at(Duration::seconds(5));
  EXPECT_EQ(admitted(rate, "a", now, 50), 10);
  EXPECT_EQ(admitted(rate, "b", now, 50), 10) << "another address";
  now += Duration::milliseconds(300);
  EXPECT_EQ(admitted(rate, "a", now, 50), 3);
  now += Duration::seconds(60);
  EXPECT_EQ(admitted(rate, "a", now, 50), 10) << "not more, however long it was silent";
}

TEST(RequestRate, admit__a_refusal_costs_nothing) {
  RequestRate rate(2);
  const Time now = Time::at(Duration::seconds(5));
  EXPECT_EQ(admitted(rate, "a", now, 1000), 2);
  EXPECT_EQ(admitted(rate, "a", now + Duration::milliseconds(500), 1), 1);
}

TEST(RequestRate, admit__remembers_so_many_addresses_only) {
  RequestRate rate(1);
  Time now = Time::at(Duration::seconds(5));
  for (std::size_t i = 0; i < RequestRate::kMostAddresses; ++i) {
    ASSERT_TRUE(rate.admit(fmt::format("{}", i), now));
  }
  EXPECT_FALSE(rate.admit("one more", now));
  EXPECT_FALSE(rate.admit("0", now));
  now += Duration::seconds(1);
  EXPECT_TRUE(rate.admit("one more", now)) << "the others are forgotten";
}

SwitchConfig with(const std::string& control) {
  SwitchConfig config;
  config.control = control;
  return config;
}

TEST(SwitchConfig, draw_token__where_other_hosts_reach_the_control_socket) {
  for (const char* open : {"0.0.0.0:0", "*:7700", "192.0.2.1:7700", "[::]:7700"}) {
    SwitchConfig one = with(open);
    SwitchConfig other = with(open);
    ASSERT_TRUE(one.draw_token() && other.draw_token()) << open;
    EXPECT_EQ(one.token->size(), 32U);
    EXPECT_NE(*one.token, *other.token);
  }
  for (const char* own : {"127.0.0.1:7700", "[::1]:0"}) EXPECT_FALSE(with(own).draw_token()) << own;
}

TEST(SwitchConfig, draw_token__not_if_one_is_given) {
  for (const char* given : {"token: secret\n", "token: \"\"\n"}) {
    SwitchConfig config = SwitchConfig::parse(given, "f").value();
    config.control = "0.0.0.0:7700";
    EXPECT_FALSE(config.draw_token()) << given;
  }
  EXPECT_TRUE(SwitchConfig::parse("control: 0.0.0.0:1\n", "f")->draw_token());
}

TEST(SwitchConfig, parse__requests_per_second) {
  EXPECT_EQ(SwitchConfig::parse("requests_per_second: 7\n", "f")->requests_per_second, 7U);
  for (const char* bad : {"0", "-1", "1000001", "many"}) {
    const std::string error =
        message_of(SwitchConfig::parse(fmt::format("requests_per_second: {}\n", bad), "f"));
    EXPECT_NE(error.find("requests_per_second"), std::string::npos) << bad << ": " << error;
  }
}

}  // namespace
}  // namespace thalweg::switchd
