#include "sim/scenario/sweep.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

namespace thalweg::sim {
namespace {

YAML::Node applied(const char* text, const Settings& settings) {
  YAML::Node root = YAML::Load(text);
  const Status status = apply_settings(root, "file.yaml", settings);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message());
  return root;
}

std::string failure(const char* text, const Settings& settings) {
  YAML::Node root = YAML::Load(text);
  const Status status = apply_settings(root, "file.yaml", settings);
  return status.ok() ? "no error" : status.error().message();
}

constexpr const char* kFile = R"(variables: {rate: 10G, hosts: 4}
topology: single-switch:hosts=${hosts},host=${rate}
transport: {kind: dctcp, iw: 10}
jobs: [{scheme: ring}, {scheme: "${rate}"}]
)";

TEST(Settings, variables__put_in_place_with_their_usual_values) {
  const YAML::Node root = applied(kFile, {});
  EXPECT_EQ(root["topology"].Scalar(), "single-switch:hosts=4,host=10G");
  EXPECT_EQ(root["jobs"][1]["scheme"].Scalar(), "10G");
  EXPECT_FALSE(root["variables"].IsDefined());
}

TEST(Settings, key_of_a_variable__changes_it) {
  const YAML::Node root = applied(kFile, {{"rate", "40G"}});
  EXPECT_EQ(root["topology"].Scalar(), "single-switch:hosts=4,host=40G");
}

TEST(Settings, path__changes_a_value_of_a_map_or_list) {
  const YAML::Node root =
      applied(kFile, {{"transport.iw", "70"}, {"jobs.0.scheme", "rat"}, {"seed", "3"}});
  EXPECT_EQ(root["transport"]["iw"].Scalar(), "70");
  EXPECT_EQ(root["jobs"][0]["scheme"].Scalar(), "rat");
  EXPECT_EQ(root["seed"].Scalar(), "3");
}

TEST(Settings, later_setting__wins) {
  const YAML::Node root = applied(kFile, {{"hosts", "8"}, {"hosts", "9"}});
  EXPECT_EQ(root["topology"].Scalar(), "single-switch:hosts=9,host=10G");
}

TEST(Settings, bad_path__says_what_is_there) {
  EXPECT_NE(failure(kFile, {{"network.buffer", "1"}}).find("there are"), std::string::npos);
  EXPECT_NE(failure(kFile, {{"jobs.2.scheme", "ring"}}).find("none of the 2"), std::string::npos);
  EXPECT_NE(failure(kFile, {{"topology.hosts", "2"}}).find("nothing below"), std::string::npos);
}

TEST(Settings, values__have_the_lines_of_what_they_replace) {
  const YAML::Node root = applied("a: 1\njobs:\n  - {scheme: ring}\n  - {scheme: rat}\n",
                                  {{"jobs.1.scheme", "ps"}, {"jobs.0.new", "2"}});
  EXPECT_EQ(root["jobs"][1]["scheme"].Mark().line, 3);
  EXPECT_EQ(root["jobs"][1]["scheme"].Scalar(), "ps");
  const YAML::Node first = root["jobs"][0];  // a new key has the line of its map
  EXPECT_EQ(first["new"].Scalar(), "2");
  for (const auto& entry : first) EXPECT_EQ(entry.first.Mark().line, 2);
}

TEST(Settings, unknown_variable__names_the_line_and_those_there_are) {
  const std::string message = failure("variables: {a: 1}\nb: ${c}\n", {});
  EXPECT_NE(message.find("file.yaml: line 2"), std::string::npos) << message;
  EXPECT_NE(message.find("'c' is not a variable; 'variables' has: a"), std::string::npos)
      << message;
}

TEST(Settings, parse_setting__needs_key_and_equals) {
  EXPECT_EQ(parse_setting("a.b=c=d").value(), (Setting{"a.b", "c=d"}));
  EXPECT_FALSE(parse_setting("=x").ok());
  EXPECT_FALSE(parse_setting("x").ok());
}

TEST(Sweep, points__all_combinations_the_last_fastest) {
  const auto axes = axes_from_node(
      YAML::Load("{scheme: [ring, rat], size: {small: {hosts: 4, rate: 1G}, large: {hosts: 9}}}"),
      "file.yaml");
  ASSERT_TRUE(axes.ok()) << axes.error().message();
  const auto points = points_of(*axes).value();
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[1].labels, (std::vector<std::string>{"ring", "large"}));
  EXPECT_EQ(points[2].labels, (std::vector<std::string>{"rat", "small"}));
  EXPECT_EQ(points[2].settings, (Settings{{"scheme", "rat"}, {"hosts", "4"}, {"rate", "1G"}}));
}

TEST(Sweep, no_axis__one_point) { EXPECT_EQ(points_of({}).value().size(), 1U); }

TEST(Sweep, bad_axes__refused) {
  for (const char* text : {"{a: []}", "{a: 3}", "{a: [1, 1]}", "[a]", "{a: {x: 3}}"}) {
    EXPECT_FALSE(axes_from_node(YAML::Load(text), "f").ok()) << text;
  }
}

TEST(Sweep, too_many_points__refused) {
  std::vector<Axis> axes;
  for (int i = 0; i < 6; ++i) {
    Axis axis{.name = std::to_string(i), .values = {}};
    for (int v = 0; v < 10; ++v) axis.values.push_back({std::to_string(v), {}});
    axes.push_back(axis);
  }
  EXPECT_FALSE(points_of(axes).ok());
}

TEST(Sweep, flag__replaces_the_axis_of_its_name) {
  std::vector<Axis> axes = axes_from_node(YAML::Load("{a: [1, 2], b: [3]}"), "f").value();
  put_axis(axes, parse_axis("a=[5, 6, 7]").value());
  put_axis(axes, parse_axis("c=[x]").value());
  ASSERT_EQ(axes.size(), 3U);
  EXPECT_EQ(axes[0].values.size(), 3U);
  EXPECT_EQ(axes[0].values[2].label, "7");
  EXPECT_FALSE(parse_axis("a=5").ok());
}

}  // namespace
}  // namespace thalweg::sim
