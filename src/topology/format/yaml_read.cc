// The reader of our own format (docs/topology-format.md). It walks a tree of known depth, so that
// aliases cannot blow it up, and knows its line at every step.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "topology/format/load.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"

namespace thalweg::topology {
namespace {

constexpr Duration kDefaultDelay = Duration::microseconds(1);
constexpr std::array<std::string_view, 3> kLinkKeys{"rate", "delay", "buffer"};

// Something that the file names, and its line.
template <class Id>
struct Named {
  Id id;
  int line = 0;
};

struct RegionEntry {
  std::string name;
  std::string parent;  // empty: the whole network
  int line = 0;
  int parent_line = 0;
  RegionId id;
  bool in_progress = false;  // true while its parent is being added
};

class YamlReader : private YamlSource {
 public:
  YamlReader(std::string_view source, std::string name)
      : YamlSource(source), builder_(std::move(name)) {}

  Result<Topology> read(const YAML::Node& root);

 private:
  struct Defaults {
    std::optional<Bandwidth> rate;
    Duration delay = kDefaultDelay;
    Bytes buffer;
  };

  Status read_link_fields(const Fields& fields, Defaults& out) const;

  Status read_regions(const YAML::Node& node);
  Status add_region(std::size_t index);
  Status read_nodes(const YAML::Node& node, std::string_view field, NodeKind kind);
  Status read_links(const YAML::Node& node, const Defaults& defaults);
  Result<NodeId> read_end(const YAML::Node& node) const;
  Status check_whole(int line) const;

  TopologyBuilder builder_;
  std::vector<RegionEntry> region_entries_;
  std::unordered_map<std::string, std::size_t> region_index_;
  std::unordered_map<std::string, Named<NodeId>> nodes_;
  std::vector<Named<NodeId>> hosts_;
  std::vector<std::string> host_names_;
  std::vector<bool> host_linked_;  // by node
};

Status YamlReader::read_link_fields(const Fields& fields, Defaults& out) const {
  if (const auto rate = fields.find("rate"); rate != fields.end()) {
    THALWEG_TRY(out.rate, quantity_of(rate->second, "rate", parse_bandwidth,
                                      Bandwidth::bits_per_second(1), kMaxRate));
  }
  if (const auto delay = fields.find("delay"); delay != fields.end()) {
    THALWEG_TRY(out.delay,
                quantity_of(delay->second, "delay", parse_duration, Duration(), kMaxDelay));
  }
  if (const auto buffer = fields.find("buffer"); buffer != fields.end()) {
    THALWEG_TRY(out.buffer,
                quantity_of(buffer->second, "buffer", parse_bytes, Bytes(), kMaxBuffer));
  }
  return ok_status();
}

Status YamlReader::read_regions(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 1> kRequired{"name"};
  static constexpr std::array<std::string_view, 1> kOptional{"parent"};
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "regions"));
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const Fields fields, fields_of(item, "a region", kRequired, kOptional));
    RegionEntry entry;
    entry.line = line_of(item);
    THALWEG_TRY(entry.name, text_of(fields.find("name")->second, "name"));
    if (const auto parent = fields.find("parent"); parent != fields.end()) {
      THALWEG_TRY(entry.parent, text_of(parent->second, "parent"));
      entry.parent_line = line_of(parent->second);
      if (entry.parent.empty()) return error(entry.parent_line, "'parent' is empty: name a region");
    }
    const auto [place, fresh] = region_index_.emplace(entry.name, region_entries_.size());
    if (!fresh) {
      return error(entry.line, fmt::format("region name '{}' is used twice; first at line {}",
                                           entry.name, region_entries_[place->second].line));
    }
    region_entries_.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < region_entries_.size(); ++i) THALWEG_TRY_STATUS(add_region(i));
  return ok_status();
}

// Adds a region after its ancestors, because a parent may stand further down in the file.
Status YamlReader::add_region(std::size_t index) {
  std::vector<std::size_t> chain;
  for (std::size_t i = index; !region_entries_[i].id.valid();) {
    RegionEntry& entry = region_entries_[i];
    if (entry.in_progress) {
      std::vector<std::string> names;
      const auto start = std::find(chain.begin(), chain.end(), i);
      for (auto it = start; it != chain.end(); ++it) names.push_back(region_entries_[*it].name);
      names.push_back(entry.name);
      return error(entry.line, fmt::format("region '{}' lies within itself: {}", entry.name,
                                           fmt::join(names, " → ")));
    }
    entry.in_progress = true;
    chain.push_back(i);
    if (entry.parent.empty()) break;
    const auto parent = region_index_.find(entry.parent);
    if (parent == region_index_.end()) {
      return error(entry.parent_line, fmt::format("region '{}' has the unknown parent '{}': name "
                                                  "an entry of 'regions'",
                                                  entry.name, entry.parent));
    }
    i = parent->second;
  }
  std::reverse(chain.begin(), chain.end());
  for (const std::size_t i : chain) {
    RegionEntry& entry = region_entries_[i];
    const RegionId parent =
        entry.parent.empty() ? kWholeNetwork : region_entries_[region_index_.at(entry.parent)].id;
    const Result<RegionId> id = builder_.add_region(entry.name, parent);
    if (!id.ok()) return error(entry.line, id.error().message());
    entry.id = *id;
  }
  return ok_status();
}

Status YamlReader::read_nodes(const YAML::Node& node, std::string_view field, NodeKind kind) {
  static constexpr std::array<std::string_view, 1> kRequired{"name"};
  static constexpr std::array<std::string_view, 1> kOptional{"region"};
  const std::string_view what = kind == NodeKind::kHost ? "a host" : "a switch";
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, field));
  for (const YAML::Node& item : items) {
    const int line = line_of(item);
    THALWEG_TRY(const Fields fields, fields_of(item, what, kRequired, kOptional));
    THALWEG_TRY(const std::string name, text_of(fields.find("name")->second, "name"));
    if (const auto first = nodes_.find(name); first != nodes_.end()) {
      return error(line, fmt::format("node name '{}' is used twice; first at line {}", name,
                                     first->second.line));
    }
    RegionId region = kWholeNetwork;
    if (const auto given = fields.find("region"); given != fields.end()) {
      THALWEG_TRY(const std::string region_name, text_of(given->second, "region"));
      const auto entry = region_index_.find(region_name);
      if (entry == region_index_.end()) {
        return error(line_of(given->second),
                     fmt::format("'{}' is in the unknown region '{}': name an entry of 'regions'",
                                 name, region_name));
      }
      region = region_entries_[entry->second].id;
    }
    const Result<NodeId> id = kind == NodeKind::kHost ? builder_.add_host(name, region)
                                                      : builder_.add_switch(name, region);
    if (!id.ok()) return error(line, id.error().message());
    nodes_.emplace(name, Named<NodeId>{*id, line});
    if (kind == NodeKind::kHost) {
      hosts_.push_back({*id, line});
      host_names_.push_back(name);
    }
  }
  return ok_status();
}

Result<NodeId> YamlReader::read_end(const YAML::Node& node) const {
  THALWEG_TRY(const std::string name, text_of(node, "between"));
  const auto found = nodes_.find(name);
  if (found != nodes_.end()) return found->second.id;
  return error(line_of(node), fmt::format("'between' names the unknown node '{}': name entries of "
                                          "'hosts' or 'switches'",
                                          name));
}

Status YamlReader::read_links(const YAML::Node& node, const Defaults& defaults) {
  static constexpr std::array<std::string_view, 1> kRequired{"between"};
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "links"));
  host_linked_.assign(nodes_.size(), false);
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const Fields fields, fields_of(item, "a link", kRequired, kLinkKeys));
    const YAML::Node& ends = fields.find("between")->second;
    if (!ends.IsSequence() || ends.size() != 2) {
      return error(line_of(ends), "'between' must be a list of two node names");
    }
    THALWEG_TRY(const NodeId a, read_end(ends[0]));
    THALWEG_TRY(const NodeId b, read_end(ends[1]));
    Defaults spec = defaults;
    THALWEG_TRY_STATUS(read_link_fields(fields, spec));
    if (!spec.rate) {
      return error(line_of(item), "a link has no 'rate', and 'defaults' gives none");
    }
    const Result<LinkId> link = builder_.add_link(a, b, {*spec.rate, spec.delay, spec.buffer});
    if (!link.ok()) return error(line_of(item), link.error().message());
    host_linked_[a.index()] = host_linked_[b.index()] = true;
  }
  return ok_status();
}

// Finds the same errors as build(), but with lines.
Status YamlReader::check_whole(int line) const {
  if (hosts_.empty()) return error(line, "'hosts' is empty: at least one host is needed");
  const auto of = [&](NodeId id) {
    const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                   [&](const Named<NodeId>& entry) { return entry.id == id; });
    return static_cast<std::size_t>(host - hosts_.begin());
  };
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    if (nodes_.size() > 1 && !host_linked_[hosts_[h].id.index()]) {
      return error(hosts_[h].line,
                   fmt::format("host '{}' cannot be reached: it has no link", host_names_[h]));
    }
  }
  if (const auto gap = builder_.find_gap()) {
    const std::size_t from = of(gap->from);
    const std::size_t to = of(gap->to);
    return error(hosts_[to].line,
                 fmt::format("host '{}' cannot be reached from host '{}' (line {}); hosts do not "
                             "forward",
                             host_names_[to], host_names_[from], hosts_[from].line));
  }
  return ok_status();
}

Result<Topology> YamlReader::read(const YAML::Node& root) {
  static constexpr std::array<std::string_view, 1> kRequired{"hosts"};
  static constexpr std::array<std::string_view, 5> kOptional{"name", "defaults", "regions",
                                                             "switches", "links"};
  THALWEG_TRY(const Fields fields, fields_of(root, "the topology", kRequired, kOptional));
  const auto section = [&](std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? YAML::Node() : found->second;
  };
  if (fields.contains("name")) {
    THALWEG_TRY(std::string name, text_of(section("name"), "name"));
    if (!name.empty() && !is_good_name(name)) {
      return error(line_of(section("name")),
                   fmt::format("'name' is not allowed: use up to {} bytes of UTF-8 without "
                               "control characters",
                               kMaxNameLength));
    }
    builder_ = TopologyBuilder(std::move(name));
  }
  Defaults defaults;
  if (fields.contains("defaults")) {
    THALWEG_TRY(const Fields given, fields_of(section("defaults"), "'defaults'", {}, kLinkKeys));
    THALWEG_TRY_STATUS(read_link_fields(given, defaults));
  }
  THALWEG_TRY_STATUS(read_regions(section("regions")));
  THALWEG_TRY_STATUS(read_nodes(section("hosts"), "hosts", NodeKind::kHost));
  THALWEG_TRY_STATUS(read_nodes(section("switches"), "switches", NodeKind::kSwitch));
  THALWEG_TRY_STATUS(read_links(section("links"), defaults));
  THALWEG_TRY_STATUS(check_whole(line_of(section("hosts"))));
  Result<Topology> topology = std::move(builder_).build();
  if (!topology.ok()) return topology.error().within(std::string(name()));
  return topology;
}

}  // namespace

Result<Topology> topology_from_yaml(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(check_text(text, source));
  THALWEG_TRY(const YAML::Node document, load_yaml_document(text, source));
  return YamlReader(source, name_from_source(source)).read(document);
}

}  // namespace thalweg::topology
