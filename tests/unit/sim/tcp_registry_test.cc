#include <gtest/gtest.h>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

std::string registry_error_of(std::string_view name, const KeyValues& given) {
  const MadeTransport made = make_transport(name, given);
  return made.ok() ? "" : made.error().message();
}

void expect_error(std::string_view name, const KeyValues& given,
                  const std::vector<std::string>& parts) {
  const std::string message = registry_error_of(name, given);
  ASSERT_FALSE(message.empty());
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " not in: " << message;
  }
}

TEST(TcpRegistry, make_transport__every_name_with_its_defaults) {
  EXPECT_EQ(transport_names(),
            (std::vector<std::string_view>{"newreno", "cubic", "dctcp", "pias", "pfabric", "dlcp",
                                           "atp", "switchml"}));
  for (const std::string_view name : transport_names()) {
    SCOPED_TRACE(name);
    if (name == "dlcp") {
      EXPECT_EQ(transport_or_fail(name, {})->describe().find("dlcp: bound=0.1 "), 0U);
      continue;
    }
    if (name == "atp" || name == "switchml") {
      const auto aggregating = transport_or_fail(name, {});
      EXPECT_NE(aggregating->aggregation(), nullptr);
      EXPECT_EQ(aggregating->describe().find(std::string(name) + ": elements="), 0U);
      continue;
    }
    const auto factory = transport_or_fail(name, {});
    EXPECT_EQ(factory->header_bytes(), 40U);
    EXPECT_EQ(factory->describe().find(std::string(name) + ": mss=1460B header=40B"), 0U);
  }
}

TEST(TcpRegistry, describe__says_what_is_in_effect) {
  EXPECT_EQ(transport_or_fail("dctcp", {{"rto_min", "5ms"}, {"g", "0.5"}})->describe(),
            "dctcp: mss=1460B header=40B iw=10 max_window=1GiB dupacks=3 limited_transmit=on "
            "sack=off rto_min=5ms rto_max=60s rto_initial=5ms warm=slow_start g=0.5 alpha=1");
}

TEST(TcpRegistry, make_transport__timeouts_of_atp_that_are_out_of_order_are_named) {
  expect_error("atp", {{"timeout_min", "5ms"}},
               {"timeout: 1ms is below timeout_min, 5ms; at least timeout_min is allowed"});
  expect_error("atp", {{"timeout", "200ms"}},
               {"timeout_max: 100ms is below timeout, 200ms; at least timeout is allowed"});
  EXPECT_EQ(registry_error_of("atp", {{"timeout_min", "5ms"}, {"timeout", "5ms"}}), "");
}

// make_transport() reads what describe() prints.
TEST(TcpRegistry, transport_parameters__defaults_read_back) {
  for (const std::string_view name : transport_names()) {
    SCOPED_TRACE(name);
    const auto parameters = transport_parameters(name);
    ASSERT_TRUE(parameters.ok());
    KeyValues all;
    for (const ParameterInfo& parameter : *parameters) {
      EXPECT_FALSE(parameter.meaning.empty());
      all[parameter.key] = parameter.value;
    }
    EXPECT_EQ(transport_or_fail(name, all)->describe(), transport_or_fail(name, {})->describe());
  }
}

TEST(TcpRegistry, make_transport__bad_input_names_place_value_and_what_is_allowed) {
  expect_error("tcp", {}, {"'tcp' is not a transport", "newreno, cubic, dctcp, pias, pfabric"});
  expect_error("dctcp", {{"rtomin", "5ms"}}, {"'dctcp'", "'rtomin'", "rto_min, rto_max"});
  expect_error("newreno", {{"g", "0.1"}}, {"'newreno'", "no parameter 'g'"});
  expect_error("dctcp", {{"g", "0"}}, {"'dctcp'", "g: '0'", "0.0001 to 1"});
  expect_error("dctcp", {{"g", "nan"}}, {"g: 'nan'"});
  expect_error("dctcp", {{"iw", "0"}}, {"iw: '0'", "1 to 10000000"});
  expect_error("dctcp", {{"iw", "-3"}}, {"iw: '-3' is not a whole number"});
  expect_error("dctcp", {{"mss", "1460"}}, {"mss: '1460' is not a size", "B, kB"});
  expect_error("dctcp", {{"rto_min", "10"}}, {"rto_min: '10' is not a time", "ms"});
  expect_error("cubic", {{"rto_min", "5s"}, {"rto_max", "1s"}}, {"rto_max: '1s'", "rto_min, '5s'"});
  expect_error("cubic", {{"max_window", "100B"}}, {"max_window: '100B'", "1460B"});
  expect_error("cubic", {{"fast_convergence", "yes"}}, {"'yes'", "off or on"});
  expect_error("dctcp", {{"sack", "yes"}}, {"'dctcp'", "sack: 'yes'", "off or on"});
  expect_error("cubic", {{"hystart", "1"}}, {"'cubic'", "hystart: '1'", "off or on"});
  expect_error("newreno", {{"hystart", "on"}}, {"'newreno'", "no parameter 'hystart'"});
  expect_error("pfabric", {{"sack", "on"}}, {"'pfabric'", "no parameter 'sack'"});
  expect_error("cubic", {{"warm", "hot"}}, {"'hot'", "slow_start or avoidance"});
  expect_error("pias", {{"thresholds", "1MB,1MB"}}, {"thresholds: '1MB,1MB'", "1 to 7 sizes"});
  expect_error("pias", {{"thresholds", "1B,2B,3B,4B,5B,6B,7B,8B"}}, {"1 to 7 sizes"});
  expect_error("pias", {{"thresholds", ""}}, {"thresholds: '' is not a size"});
  expect_error("pfabric", {{"rate", "0G"}}, {"rate: '0bps'", "1Kbps to"});
  expect_error("pfabric", {{"rto", "0"}}, {"rto: '0ps'"});
}

// Structs that C++ code fills are validated too.
TEST(TcpRegistry, make_dctcp__validates_the_struct) {
  DctcpParameters parameters;
  parameters.g = 2;
  const MadeTransport made = make_dctcp(parameters);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message().find("g: '2'"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::sim
