#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "topology/format/load.h"

namespace thalweg::topology {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A plain word if every YAML reader takes it as text, else a quoted one.
std::string scalar(std::string_view text) {
  const bool plain =
      !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), [](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
      });
  constexpr std::string_view kReserved[] = {"null", "true", "false", "yes", "no", "on", "off"};
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool reserved =
      std::find(std::begin(kReserved), std::end(kReserved), lower) != std::end(kReserved);
  if (plain && !reserved) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

void write_nodes(std::string& out, const Topology& topology, NodeKind kind) {
  for (const Node& node : topology.nodes()) {
    if (node.kind != kind) continue;
    fmt::format_to(std::back_inserter(out), "  - {{name: {}", scalar(node.name));
    if (node.region != kWholeNetwork) {
      fmt::format_to(std::back_inserter(out), ", region: {}",
                     scalar(topology.region(node.region).name));
    }
    out += "}\n";
  }
}

void write_regions(std::string& out, const Topology& topology) {
  for (const Region& region : topology.regions().subspan(1)) {
    fmt::format_to(std::back_inserter(out), "  - {{name: {}", scalar(region.name));
    if (region.parent != kWholeNetwork) {
      fmt::format_to(std::back_inserter(out), ", parent: {}",
                     scalar(topology.region(region.parent).name));
    }
    out += "}\n";
  }
}

void write_links(std::string& out, const Topology& topology) {
  for (const Link& link : topology.links()) {
    fmt::format_to(
        std::back_inserter(out), "  - {{between: [{}, {}], rate: {}, delay: {}, buffer: {}}}\n",
        scalar(topology.node(link.a).name), scalar(topology.node(link.b).name),
        to_string(link.spec.rate), to_string(link.spec.delay), to_string(link.spec.buffer));
  }
}

}  // namespace

std::string topology_to_yaml(const Topology& topology) {
  std::string out = fmt::format("name: {}\n", scalar(topology.name()));
  const auto section = [&](std::string_view title, bool any, auto write) {
    if (!any) return;
    fmt::format_to(std::back_inserter(out), "{}:\n", title);
    write();
  };
  const bool switches = topology.nodes().size() > static_cast<std::size_t>(topology.host_count());
  section("regions", topology.regions().size() > 1, [&] { write_regions(out, topology); });
  section("hosts", true, [&] { write_nodes(out, topology, NodeKind::kHost); });
  section("switches", switches, [&] { write_nodes(out, topology, NodeKind::kSwitch); });
  section("links", !topology.links().empty(), [&] { write_links(out, topology); });
  return out;
}

}  // namespace thalweg::topology
