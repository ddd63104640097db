#include "plan/draw/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plan/draw/parts.h"
#include "plan/scheme.h"
#include "topology/format/load.h"
#include "topology/routing.h"

namespace thalweg::plan {
namespace {

topology::Topology topology_of(std::string_view shorthand) {
  auto topology = topology::topology_from_shorthand(shorthand);
  EXPECT_TRUE(topology) << topology.error().message();
  return std::move(topology).value();
}

// A plan on a topology, with everything that its drawings need.
struct Drawn {
  Drawn(std::string_view scheme, topology::Topology network,
        Collective collective = Collective::kAllreduce)
      : topology(std::move(network)),
        plan(
            make_plan(scheme, {.collective = collective, .topology = topology, .elements = 1 << 20})
                .value()),
        proof(verify(plan).value()),
        accounting(account(plan, proof, topology, topology::Routing(topology))) {}

  [[nodiscard]] std::string svg(const DrawOptions& options = {}) const {
    return plan_to_svg(plan, proof, topology, accounting, options);
  }
  [[nodiscard]] std::string dot(const DrawOptions& options = {}) const {
    return plan_to_dot(plan, proof, topology, options);
  }

  topology::Topology topology;
  Plan plan;
  PlanProof proof;
  Accounting accounting;
};

struct LabelledBox {
  std::string text;
  double left = 0;
  double right = 0;
  double top = 0;
  double bottom = 0;
};

bool apart(const LabelledBox& a, const LabelledBox& b) {
  return a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
}

std::vector<LabelledBox> texts_of(const pugi::xml_node& svg) {
  std::vector<LabelledBox> boxes;
  for (const pugi::xml_node node : svg.children("text")) {
    const double size = node.attribute("font-size").as_double();
    const bool bold = node.attribute("font-weight") != nullptr;
    const std::string text = node.child_value();
    const double width = text_width(text, size, bold);
    const double x = node.attribute("x").as_double();
    const double y = node.attribute("y").as_double();
    const std::string anchor = node.attribute("text-anchor").value();
    const double left = anchor == "start" ? x : anchor == "middle" ? x - width / 2 : x - width;
    boxes.push_back({text, left, left + width, y - size * 0.75, y + size * 0.2});
  }
  return boxes;
}

// Whether a rectangle is the box of a host or a switch: regions and the scale have other fills.
bool is_node(const pugi::xml_node& rect) {
  const std::string_view fill = rect.attribute("fill").value();
  return (fill == "#ffffff" || fill == "#32383f") && rect.attribute("x") != nullptr;
}

pugi::xml_document parsed(const std::string& svg) {
  pugi::xml_document document;
  const auto result = document.load_string(svg.c_str());
  EXPECT_TRUE(result) << result.description();
  return document;
}

int count_of(const std::string& text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class DrawLayout : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(DrawLayout, svg__no_text_lies_on_another_or_outside) {
  const auto [scheme, network] = GetParam();
  const Drawn drawn(scheme, topology_of(network));
  const pugi::xml_document document = parsed(drawn.svg());
  const pugi::xml_node svg = document.child("svg");
  const double width = svg.attribute("width").as_double();
  const double height = svg.attribute("height").as_double();
  const std::vector<LabelledBox> boxes = texts_of(svg);
  ASSERT_GT(boxes.size(), 8U);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const LabelledBox& a = boxes[i];
    EXPECT_TRUE(a.left >= 0 && a.right <= width && a.top >= 0 && a.bottom <= height) << a.text;
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      EXPECT_TRUE(apart(a, boxes[j])) << "'" << a.text << "' and '" << boxes[j].text << "'";
    }
  }
}

TEST_P(DrawLayout, svg__no_host_or_switch_lies_on_another_or_outside) {
  const auto [scheme, network] = GetParam();
  const Drawn drawn(scheme, topology_of(network));
  const pugi::xml_document document = parsed(drawn.svg());
  const double width = document.child("svg").attribute("width").as_double();
  std::vector<LabelledBox> boxes;
  for (const pugi::xml_node rect : document.child("svg").children("rect")) {
    if (!is_node(rect)) continue;
    const double x = rect.attribute("x").as_double();
    const double y = rect.attribute("y").as_double();
    boxes.push_back({rect.child_value("title"), x, x + rect.attribute("width").as_double(), y,
                     y + rect.attribute("height").as_double()});
  }
  ASSERT_GE(boxes.size(), 3U);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const LabelledBox& a = boxes[i];
    EXPECT_TRUE(a.left >= 0 && a.right <= width) << a.text;
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      EXPECT_TRUE(apart(a, boxes[j])) << "'" << a.text << "' and '" << boxes[j].text << "'";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, DrawLayout,
                         testing::Values(std::pair("rat", "leaf-spine:racks=2,hosts=4,spines=1"),
                                         std::pair("ring", "leaf-spine:racks=2,hosts=4,spines=1"),
                                         std::pair("ps", "leaf-spine:racks=4,hosts=4,spines=2"),
                                         std::pair("rat", "three-tier"),
                                         std::pair("rat", "fat-tree:k=4"),
                                         std::pair("ring", "single-switch:hosts=2"),
                                         std::pair("butterfly", "single-switch:hosts=8"),
                                         std::pair("ring", "leaf-spine:racks=8,hosts=8,spines=4"),
                                         std::pair("rat", "leaf-spine:racks=16,hosts=8,spines=4"),
                                         std::pair("ps", "single-switch:hosts=90"),
                                         std::pair("rat", "fat-tree:k=8")));

TEST(DrawSvg, heading__steps_and_bytes_across_regions) {
  const Drawn drawn("rat", topology_of("leaf-spine:racks=2,hosts=4,spines=1"));
  const std::string svg = drawn.svg();
  EXPECT_NE(svg.find(">4 steps · " + to_human(drawn.accounting.cross_region) + " across regions"),
            std::string::npos);
  EXPECT_NE(svg.find("rat: allreduce of 4.19 MB among 8 ranks"), std::string::npos);
}

TEST(DrawSvg, busiest_link__has_the_full_colour_and_others_do_not) {
  const Drawn drawn("ps", topology_of("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G"));
  const pugi::xml_document document = parsed(drawn.svg());
  int full = 0;
  for (const pugi::xml_node line : document.child("svg").children("line")) {
    if (line.attribute("stroke").value() == load_color(1)) ++full;
  }
  EXPECT_EQ(full, 4) << "both directions of the two uplinks";
}

TEST(DrawSvg, many_hosts__regions_as_boxes_and_says_so) {
  const std::string few = Drawn("rat", topology_of("leaf-spine:racks=8,hosts=8,spines=1")).svg();
  EXPECT_EQ(few.find("too many to draw"), std::string::npos);
  EXPECT_EQ(few.find(">8 hosts<"), std::string::npos);
  const std::string many = Drawn("rat", topology_of("leaf-spine:racks=8,hosts=9,spines=1")).svg();
  EXPECT_NE(many.find("72 hosts are too many to draw one by one"), std::string::npos);
  EXPECT_EQ(count_of(many, ">9 hosts<"), 8);
}

TEST(DrawSvg, names__escaped) {
  topology::TopologyBuilder builder("a<b & \"c\"");
  const topology::RegionId region = builder.add_region("<rack>&", topology::kWholeNetwork).value();
  const topology::NodeId a = builder.add_host("h<0>", region).value();
  const topology::NodeId b = builder.add_host("h&1", region).value();
  const topology::NodeId middle = builder.add_switch("\"sw\" <&>", region).value();
  const topology::LinkSpec spec{.rate = Bandwidth::gbps(1), .delay = {}, .buffer = {}};
  ASSERT_TRUE(builder.add_link(a, middle, spec));
  ASSERT_TRUE(builder.add_link(b, middle, spec));
  const Drawn drawn("ring", std::move(builder).build().value());
  const pugi::xml_document document = parsed(drawn.svg());
  const std::vector<LabelledBox> texts = texts_of(document.child("svg"));
  const auto shown = [&](std::string_view text) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const LabelledBox& box) { return box.text == text; });
  };
  EXPECT_TRUE(shown("<rack>&"));
  EXPECT_TRUE(shown("\"sw\" <&>"));
  EXPECT_NE(drawn.dot().find("label=\"<rack>&\""), std::string::npos);
}

TEST(DrawTrees, rat__one_root_and_an_aggregator_in_the_other_rack) {
  const Drawn drawn("rat", topology_of("leaf-spine:racks=2,hosts=4,spines=1"));
  const auto trees = draw_trees(drawn.plan, drawn.proof, draw_columns(drawn.topology), {});
  ASSERT_EQ(trees.size(), 4U);
  for (const DrawTree& tree : trees) {
    EXPECT_EQ(tree.rows, 4);
    EXPECT_EQ(tree.arrows.size(), 14U) << "seven hosts up, seven down";
    ASSERT_EQ(tree.roles.size(), 2U);
    const auto by_role = [&](DrawRole role) {
      return *std::find_if(tree.roles.begin(), tree.roles.end(),
                           [role](const DrawRoleMark& mark) { return mark.role == role; });
    };
    const DrawRoleMark root = by_role(DrawRole::kRoot);
    const DrawRoleMark aggregator = by_role(DrawRole::kAggregator);
    EXPECT_EQ(root.row, 2);
    EXPECT_EQ(aggregator.row, 1);
    EXPECT_NE(drawn.topology.region_of(root.rank), drawn.topology.region_of(aggregator.rank));
  }
}

TEST(DrawTrees, butterfly__no_roles) {
  const Drawn drawn("butterfly", topology_of("single-switch:hosts=8"));
  const auto trees = draw_trees(drawn.plan, drawn.proof, draw_columns(drawn.topology), {});
  ASSERT_FALSE(trees.empty());
  EXPECT_TRUE(trees.front().roles.empty());
  EXPECT_EQ(trees.front().rows, 3);
}

TEST(DrawTrees, all_to_all__a_panel_a_source) {
  const Drawn drawn("direct", topology_of("single-switch:hosts=4"), Collective::kAllToAll);
  const auto trees = draw_trees(drawn.plan, drawn.proof, draw_columns(drawn.topology), {});
  ASSERT_EQ(trees.size(), 4U);
  EXPECT_EQ(trees.front().arrows.size(), 3U);
}

TEST(DrawTrees, long_ring__a_row_stands_for_several_steps) {
  const Drawn drawn("ring", topology_of("single-switch:hosts=100"));
  ASSERT_EQ(drawn.proof.steps, 198);
  const auto trees = draw_trees(drawn.plan, drawn.proof, draw_columns(drawn.topology), {});
  ASSERT_FALSE(trees.empty());
  EXPECT_EQ(trees.front().steps_per_row, 2);
  EXPECT_EQ(trees.front().rows, 99);
}

TEST(DrawTrees, options__which_chunks_and_how_many) {
  const Drawn drawn("ring", topology_of("single-switch:hosts=6"));
  const DrawColumns columns = draw_columns(drawn.topology);
  const auto titles = [&](const DrawOptions& options) {
    std::vector<std::string> found;
    for (const DrawTree& tree : draw_trees(drawn.plan, drawn.proof, columns, options)) {
      found.push_back(tree.title.substr(0, tree.title.find(" of")));
    }
    return found;
  };
  EXPECT_EQ(titles({.max_panels = 2, .chunks = {}}),
            (std::vector<std::string>{"Chunk 0", "Chunk 1"}));
  EXPECT_EQ(titles({.max_panels = 4, .chunks = {ChunkIndex(5), ChunkIndex(3), ChunkIndex(77)}}),
            (std::vector<std::string>{"Chunk 3", "Chunk 5"}));
  EXPECT_TRUE(titles({.max_panels = 0, .chunks = {}}).empty());
  EXPECT_TRUE(parsed(drawn.svg({.max_panels = 0, .chunks = {}})).child("svg"));
}

TEST(DrawDot, every_transfer_of_a_drawn_chunk_is_an_edge) {
  const Drawn drawn("rat", topology_of("three-tier"));
  const std::string dot = drawn.dot({.max_panels = 2, .chunks = {}});
  EXPECT_EQ(count_of(dot, " -> "), 2 * 2 * (drawn.topology.host_count() - 1));
  EXPECT_EQ(count_of(dot, "{"), count_of(dot, "}"));
  EXPECT_EQ(count_of(dot, "shape=doublecircle"), 2);
}

TEST(DrawDot, quotes_in_names__escaped) {
  Drawn drawn("ring", topology_of("single-switch:hosts=2"));
  drawn.plan.scheme = "say \"hi\" \\";
  EXPECT_NE(drawn.dot().find(R"(label="say \"hi\" \\: allreduce)"), std::string::npos);
}

TEST(DrawColumns, flat_network_of_many_hosts__blocks_of_neighbours) {
  const DrawColumns columns = draw_columns(topology_of("single-switch:hosts=90"));
  EXPECT_TRUE(columns.summarised);
  EXPECT_EQ(columns.columns.front().name, "0–2");
  std::size_t hosts = 0;
  for (const DrawColumn& column : columns.columns) hosts += column.ranks.size();
  EXPECT_EQ(hosts, 90U);
}

TEST(DrawColumns, nested_regions__spans_from_outer_to_inner) {
  const topology::Topology topology = topology_of("fat-tree:k=4");
  const DrawColumns columns = draw_columns(topology);
  EXPECT_EQ(columns.size(), 16);
  EXPECT_EQ(columns.span_levels(), 2);
  ASSERT_EQ(columns.spans.size(), 12U) << "four pods of two racks";
  EXPECT_EQ(columns.spans.front().height, 1);
  EXPECT_EQ(columns.spans.front().last - columns.spans.front().first, 3);
  EXPECT_EQ(columns.spans.back().height, 0);
}

TEST(DrawColumns, name_within__leaves_out_the_region) {
  const topology::Topology topology = topology_of("fat-tree:k=4");
  const topology::RegionId rack = topology.region_of(Rank(0));
  const std::string pod = topology.region(topology.region(rack).parent).name;
  EXPECT_EQ(name_within(topology, pod + "-x7", rack), "x7");
  EXPECT_EQ(name_within(topology, "elsewhere-x7", rack), "elsewhere-x7");
}

TEST(DrawCanvas, fitted__cut_at_whole_letters) {
  EXPECT_EQ(fitted("short", 10, 1000), "short");
  const std::string cut = fitted("ürgründe und mehr", 10, 50);
  EXPECT_TRUE(cut.ends_with("…"));
  EXPECT_LE(text_width(cut, 10), 50);
  EXPECT_EQ(fitted("anything", 10, 3), "");
}

}  // namespace
}  // namespace thalweg::plan
