#include "net/atp/placement.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

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
  EXPECT_NE(message_of(atp_network(kRacks, {"0/10"})).find("9 hosts for 10 ranks"),
            std::string::npos);
  EXPECT_NE(message_of(atp_network("/no/file", {"0"})).find("/no/file"), std::string::npos);
  const AtpNetwork network = atp_network(kRacks, {"0"}).value();
  const std::string message =
      message_of(nodes_of({{.name = "attic", .address = "x:1"}}, network.topology));
  EXPECT_NE(message.find("no switch 'attic'"), std::string::npos) << message;
}

// The host of each of `count` ranks.
std::vector<std::string> hosts_of(int count, int ranks_of_host) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < count; ++rank) hosts.push_back(std::to_string(rank / ranks_of_host));
  return hosts;
}

TEST(AtpNetwork, hosts__in_the_order_of_ranks) {
  EXPECT_EQ(atp_network(kRacks, {"0/9", "8/9", "2/4"}).value().hosts,
            (std::vector{Rank(0), Rank(8), Rank(2)}));
  EXPECT_EQ(atp_network(kRacks, {"0/18", "3/18", "17/18"}).value().hosts,
            (std::vector{Rank(0), Rank(1), Rank(8)}));
}

TEST(AtpPlacement, many_ranks__one_switch_has_several_groups) {
  const World world("single-switch:hosts=70", hosts_of(70, 1), {"switch0"});
  const AtpPlacement placement = world.place();
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{24, 23, 23}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{0, 0, 0}));
  EXPECT_EQ(placement.most_servers, 32);
}

TEST(AtpPlacement, many_ranks__racks_of_more_than_a_group) {
  const World world("leaf-spine:racks=2,hosts=40,spines=1", hosts_of(80, 1), {"leaf0", "leaf1"});
  const AtpPlacement placement = world.place();
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{32, 8, 32, 8}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{0, 0, 1, 1}));
}

TEST(AtpPlacement, many_ranks__strays_share_groups_where_these_run_out) {
  const World world("leaf-spine:racks=4,hosts=20,spines=1", hosts_of(80, 1), {"leaf0", "leaf1"});
  const AtpPlacement placement = world.place();
  EXPECT_LE(placement.groups.size(), 32U);
  EXPECT_EQ(placement.groups[2], 2U);
  EXPECT_EQ(placement.switches[2], 0U);
  EXPECT_EQ(std::accumulate(placement.groups.begin(), placement.groups.end(), 0), 80);
}

TEST(AtpPlacement, many_ranks__more_than_groups_hold) {
  std::vector<std::string> switches;
  for (int i = 0; i < 33; ++i) switches.push_back(fmt::format("leaf{}", i));
  const World world("leaf-spine:racks=33,hosts=2,spines=1", hosts_of(66, 1), switches);
  const std::string message =
      message_of(place_atp_job(&world.network, 66, world.nodes, world.present));
  EXPECT_NE(message.find("66 ranks make 33 groups"), std::string::npos) << message;
  EXPECT_NE(message.find("up to 32 groups"), std::string::npos) << message;
}

TEST(AtpPlacement, hosts__their_ranks_count_once) {
  World world("single-switch:hosts=4", hosts_of(11, 3), {"host0", "host1", "host2", "switch0"});
  AtpPlacement placement = world.place();
  // Host 3 has no switch of its own.
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{2, 3, 3, 3}));
  EXPECT_EQ(placement.order, (std::vector<int>{9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{3, 0, 1, 2}));
  EXPECT_EQ(placement.top, 3U);
  EXPECT_EQ(placement.most_servers, 11);
  // Without the network's switch, that of a host is the second level.
  world.present[3] = false;
  placement = world.place();
  EXPECT_EQ(placement.top, 0U);
  EXPECT_EQ(placement.groups, (std::vector<std::uint8_t>{3, 3, 3, 1, 1}));
  EXPECT_EQ(placement.switches, (std::vector<std::size_t>{0, 1, 2, 0, 0}));
  EXPECT_EQ(placement.most_servers, 3);
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
