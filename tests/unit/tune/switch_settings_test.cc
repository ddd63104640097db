#include "tune/switch_settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/segment_tag.h"
#include "tensor/tags.h"

namespace thalweg::tune {
namespace {

SwitchSettings settings_of(std::vector<std::string> ports) {
  SwitchSettings settings;
  for (std::uint8_t q = 1; q <= kDataPriorities; ++q) {
    settings.queues.push_back(
        {.priority = q, .threshold = Bytes(10'000 * q), .limit = Bytes(20'000 * q)});
  }
  settings.port_buffer = Bytes(600'000);
  settings.title = "test";
  settings.ports = std::move(ports);
  return settings;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Follows a packet from its DSCP to the queue and its thresholds, as the switch does.
TEST(SwitchSettings, sonic__every_tag_reaches_its_queue) {
  const auto json = nlohmann::json::parse(to_sonic(settings_of({"Ethernet0", "Ethernet4"})));
  for (const std::string port : {"Ethernet0", "Ethernet4"}) {
    const auto& map = json["PORT_QOS_MAP"][port];
    for (std::uint8_t q = 0; q < kPriorityCount; ++q) {
      const std::string tc = json["DSCP_TO_TC_MAP"][map["dscp_to_tc_map"].get<std::string>()]
                                 [std::to_string(tensor::dscp_of(q))];
      const std::string queue =
          json["TC_TO_QUEUE_MAP"][map["tc_to_queue_map"].get<std::string>()][tc];
      EXPECT_EQ(queue, std::to_string(7 - q));  // SONiC serves the highest first
      const auto& entry = json["QUEUE"][port + "|" + queue];
      EXPECT_EQ(json["SCHEDULER"][entry["scheduler"].get<std::string>()]["type"], "STRICT");
      ASSERT_EQ(entry.contains("wred_profile"), q != kControlPriority);
      if (q == kControlPriority) continue;
      const auto& profile = json["WRED_PROFILE"][entry["wred_profile"].get<std::string>()];
      EXPECT_EQ(profile["ecn"], "ecn_green");
      EXPECT_EQ(profile["wred_green_enable"], "true");
      EXPECT_EQ(profile["green_min_threshold"], std::to_string(10'000 * q));
      EXPECT_EQ(profile["green_max_threshold"], std::to_string(10'000 * q));
      EXPECT_EQ(profile["green_drop_probability"], "100");
    }
  }
  EXPECT_EQ(json["DSCP_TO_TC_MAP"]["DLCP"].size(), 64);
  EXPECT_EQ(json["DSCP_TO_TC_MAP"]["DLCP"]["0"], "0");
}

TEST(SwitchSettings, cumulus__commands) {
  const std::string text = to_cumulus(settings_of({"swp1"}));
  EXPECT_TRUE(has(text, "nv set qos mapping default-global trust l3\n"));
  EXPECT_TRUE(has(text, "nv set qos mapping default-global dscp 59 switch-priority 7\n"));
  EXPECT_TRUE(has(text, "nv set qos mapping default-global dscp 3 switch-priority 0\n"));
  EXPECT_TRUE(
      has(text, "nv set qos egress-scheduler default-global traffic-class 0-7 mode strict\n"));
  const std::string first = "nv set qos congestion-control default-global traffic-class 6 ";
  EXPECT_TRUE(has(text, first + "red enable\n"));
  EXPECT_TRUE(has(text, first + "ecn enable\n"));
  EXPECT_TRUE(has(text, first + "min-threshold 10000\n"));
  // The control queue.
  EXPECT_FALSE(has(text, "congestion-control default-global traffic-class 7 "));
  EXPECT_TRUE(text.ends_with("nv config apply\n"));
}

TEST(SwitchSettings, onyx__commands_for_every_port) {
  const std::string text = to_onyx(settings_of({"1/1", "1/2"}));
  for (const std::string port : {"1/1", "1/2"}) {
    const std::string interface = "interface ethernet " + port + " ";
    EXPECT_TRUE(has(text, interface + "qos trust L3\n"));
    EXPECT_TRUE(has(text, interface + "qos map dscp 51 to switch-priority 6\n"));
    EXPECT_TRUE(has(text, interface + "traffic-class 7 dcb ets strict\n"));
    // 70,000 bytes, rounded to whole KiB.
    EXPECT_TRUE(has(text, interface + "traffic-class 0 congestion-control both minimum-absolute 68 "
                                      "maximum-absolute 68\n"));
    EXPECT_FALSE(has(text, interface + "traffic-class 7 congestion-control"));
  }
}

TEST(SwitchSettings, scenario__both_thresholds_of_every_queue) {
  EXPECT_EQ(to_scenario(settings_of({"-"})),
            "# test\n"
            "network:\n"
            "  discipline: strict-priority\n"
            "  port_buffer: 600kB\n"
            "  selective_thresholds: [10kB, 20kB, 30kB, 40kB, 50kB, 60kB, 70kB]\n"
            "  queue_limits: [20kB, 40kB, 60kB, 80kB, 100kB, 120kB, 140kB]\n");
}

}  // namespace
}  // namespace thalweg::tune
