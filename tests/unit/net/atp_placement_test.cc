#include "net/atp/placement.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/messages.h"
#include "net/atp/job_message.h"
#include "net/atp/switch_list.h"

namespace thalweg::net {
namespace {

TEST(SwitchList, parse__one_address_or_names_with_addresses) {
  EXPECT_TRUE(parse_switch_list("").value().empty());
  EXPECT_EQ(parse_switch_list("10.0.0.1:7700").value(),
            (std::vector<ListedSwitch>{{.name = "", .address = "10.0.0.1:7700"}}));
  const std::vector<ListedSwitch> two{{.name = "leaf0", .address = "10.0.0.1:7700"},
                                      {.name = "leaf 1", .address = "[::1]:7700"}};
  EXPECT_EQ(parse_switch_list("leaf0=10.0.0.1:7700,leaf 1=[::1]:7700").value(), two);
  EXPECT_EQ(
      parse_switch_list("# a = b, c\n leaf0 = 10.0.0.1:7700\n\nleaf 1=[::1]:7700 \r\n").value(),
      two);
}

TEST(SwitchList, parse__bad_lists_are_named) {
  const std::pair<const char*, const char*> bad[] = {{"leaf0", "'leaf0'"},
                                                     {"=1.1.1.1:1", "'=1.1.1.1:1'"},
                                                     {"a=1.1.1.1:1,,b=1.1.1.1:2", "''"},
                                                     {"a=1.1.1.1:1,b", "'b'"},
                                                     {"a=1.1.1.1:1,1.1.1.1:2", "no name"},
                                                     {"a=1.1.1.1:1,a=1.1.1.1:2", "twice"},
                                                     {"a=1.1.1.1:1,b=1.1.1.1:1", "twice"}};
  for (const auto& [text, cause] : bad) {
    EXPECT_NE(message_of(parse_switch_list(text)).find(cause), std::string::npos)
        << text << ": " << message_of(parse_switch_list(text));
  }
  EXPECT_NE(message_of(read_switch_list("/nowhere/at/all")).find("/nowhere/at/all"),
            std::string::npos);
}

constexpr const char* kRacks = "leaf-spine:racks=3,hosts=3,spines=1,host=1G,uplink=1G";

// The switches of a list in the network, all of which answer.
struct World {
  World(const char* topology, const std::vector<std::string>& hosts,
        const std::vector<std::string>& switches)
      : network(atp_network(topology, hosts).value()) {
    std::vector<ListedSwitch> list;
    for (const std::string& name : switches) list.push_back({.name = name, .address = "x:1"});
    nodes = nodes_of(list, network.topology).value();
    present.assign(list.size(), true);
  }
  [[nodiscard]] AtpPlacement place() const {
    return place_atp_job(&network, static_cast<int>(network.hosts.size()), nodes, present).value();
  }
  AtpNetwork network;
  std::vector<topology::NodeId> nodes;
  std::vector<bool> present;
};

TEST(AtpPlacement, two_racks__the_larger_has_the_servers) {
  // Ranks 0 and 2 are in rack 1, ranks 1, 3 and 4 in rack 0.
  const World world(kRacks, {"3", "rack0-host0", "4", "1", "2"}, {"leaf1", "leaf0", "spine0"});
  const AtpPlacement placement = world.place();
  EXPECT_EQ(placement.order, (std::vector<int>{1, 3, 4, 0, 2}));
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{3, 2}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(placement.top, 1U);
  EXPECT_EQ(placement.most_servers, 3);
  EXPECT_FALSE(placement.several_paths);
}

TEST(AtpPlacement, several_paths__where_racks_have_several_uplinks) {
  const World world("leaf-spine:racks=2,hosts=2,spines=2,host=1G,uplink=1G", {"0", "1", "2", "3"},
                    {"leaf0", "leaf1"});
  EXPECT_TRUE(world.place().several_paths);
}

TEST(AtpPlacement, ranks_behind_other_switches__send_to_the_second_level) {
  const World world(kRacks, {"0", "1", "3", "4", "6", "7"}, {"leaf0", "leaf1"});
  const AtpPlacement placement = world.place();
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{2, 2, 1, 1}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{0, 1, 0, 0}));
}

TEST(AtpPlacement, one_level__where_only_one_switch_has_ranks_to_sum) {
  World world(kRacks, {"3", "0", "1"}, {"spine0", "leaf0", "leaf1"});
  // Rack 1 has one rank, so there is nothing to sum.
  AtpPlacement placement = world.place();
  EXPECT_FALSE(placement.two_levels());
  EXPECT_EQ(placement.top, 1U);
  EXPECT_EQ(placement.order, (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(placement.most_servers, 2);
  // Leaf 0 does not answer.
  world.present[1] = false;
  placement = world.place();
  EXPECT_FALSE(placement.two_levels());
  EXPECT_EQ(placement.top, 0U);
  EXPECT_EQ(placement.order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(placement.most_servers, 3);
  // The network is not known.
  placement = place_atp_job(nullptr, 3, {}, {false, true}).value();
  EXPECT_EQ(placement.top, 1U);
}

TEST(AtpPlacement, bad_networks__are_named) {
  EXPECT_NE(message_of(atp_network(kRacks, {"0", "9"})).find("rank 1: '9'"), std::string::npos);
  EXPECT_NE(message_of(atp_network(kRacks, {"leaf0"})).find("'leaf0'"), std::string::npos);
  EXPECT_NE(message_of(atp_network("/no/file", {"0"})).find("/no/file"), std::string::npos);
  const AtpNetwork network = atp_network(kRacks, {"0"}).value();
  for (const char* name : {"attic", "rack0-host0"}) {
    const std::string message =
        message_of(nodes_of({{.name = name, .address = "x:1"}}, network.topology));
    EXPECT_NE(message.find(fmt::format("no switch '{}'", name)), std::string::npos) << message;
  }
}

TEST(AtpJob, from_json__checks_the_order_and_the_groups) {
  const AtpJob job{.grant = {.id = 7, .key = "", .data = {"1.1.1.1:1"}, .elements = 64},
                   .servers = 2,
                   .order = {2, 0, 1},
                   .groups = {2, 1},
                   .switches = {"1.1.1.1:1", "1.1.1.2:1"}};
  EXPECT_EQ(atp_job_from(to_json(job)).value(), job);
  const std::pair<const char*, nlohmann::json> bad[] = {
      {"order", {0, 0, 1}}, {"order", {0, 1, 3}}, {"order", {0, 1}},          {"groups", {3, 0}},
      {"groups", {2, 2}},   {"groups", "no"},     {"switches", {"1.1.1.1:1"}}};
  for (const auto& [field, value] : bad) {
    nlohmann::json fields = to_json(job);
    fields[field] = value;
    EXPECT_FALSE(atp_job_from(fields).ok()) << field << " " << value;
  }
}

}  // namespace
}  // namespace thalweg::net
