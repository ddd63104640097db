// SimAI's topology text (https://github.com/aliyun/SimAI), a list of words between blanks:
//
//   nodes gpus_per_server nvswitches switches links gpu_type
//   the ids of the NVSwitches, then of the other switches
//   source target rate delay error_rate          (once per link)
//
// Ids run from 0 to nodes−1; those that are not switches are GPUs. Our hosts are the GPUs in the
// order of their ids; every `gpus_per_server` of them form a region. An NVSwitch belongs to the
// server of the GPUs it has links to.
//
// SimAI sends traffic within a server over its NVSwitch, even if a path over the network has as few
// hops. To make it the shortest path here, every link from a GPU with an NVSwitch to the network
// passes a NIC of its own, a switch with the rate of the link and no delay.
#include <fmt/core.h>

#include <charconv>

#include "topology/format/load.h"
#include "topology/format/text.h"

namespace thalweg::topology {
namespace {

enum class Kind : std::uint8_t { kGpu, kNvSwitch, kSwitch };

struct ParsedLink {
  std::size_t source = 0;
  std::size_t target = 0;
  LinkSpec spec;
  int line = 0;
};

class SimaiReader {
 public:
  SimaiReader(std::string_view text, std::string_view source)
      : source_(source), words_(split_words(text)) {}

  Result<Topology> read();

 private:
  [[nodiscard]] Error error(int line, std::string_view message) const {
    return error_at(source_, line, message);
  }
  Result<Word> next(std::string_view what);
  Result<std::int64_t> whole(std::string_view what, std::int64_t least, std::int64_t most);
  template <class T>
  Result<T> quantity(std::string_view what, Result<T> (*parse)(std::string_view));

  Status read_header();
  Status read_switches(std::int64_t count, Kind kind, std::string_view what);
  Result<ParsedLink> read_link();
  Status read_error_rate();
  void place_switches();
  Status add_nodes(TopologyBuilder& builder);
  Result<NodeId> end_of_link(TopologyBuilder& builder, std::size_t id, std::size_t peer,
                             const LinkSpec& spec);
  Status add_link(TopologyBuilder& builder, const ParsedLink& link);
  [[nodiscard]] RegionId region_of(std::size_t id) const {
    return servers_[id] < 0 ? kWholeNetwork : regions_[static_cast<std::size_t>(servers_[id])];
  }

  std::string_view source_;
  std::vector<Word> words_;
  std::size_t next_ = 0;

  std::int64_t gpus_per_server_ = 0;
  std::int64_t nvswitch_count_ = 0;
  std::int64_t switch_count_ = 0;
  std::int64_t link_count_ = 0;
  std::vector<Kind> kinds_;  // by id
  std::vector<ParsedLink> links_;
  std::vector<std::int64_t> servers_;  // by id; -1: none
  std::vector<RegionId> regions_;      // by server
  std::vector<bool> has_nvswitch_;     // by id
  std::vector<int> nics_;              // by id: how many NICs it has
  std::vector<NodeId> nodes_;          // by id
};

Result<Word> SimaiReader::next(std::string_view what) {
  if (next_ < words_.size()) return words_[next_++];
  return error(words_.empty() ? 1 : words_.back().line,
               fmt::format("the file ends where {} is expected", what));
}

Result<std::int64_t> SimaiReader::whole(std::string_view what, std::int64_t least,
                                        std::int64_t most) {
  THALWEG_TRY(const Word word, next(what));
  Result<std::int64_t> value = parse_whole(what, word.text, least, most);
  if (!value.ok()) return error(word.line, value.error().message());
  return value;
}

template <class T>
Result<T> SimaiReader::quantity(std::string_view what, Result<T> (*parse)(std::string_view)) {
  THALWEG_TRY(const Word word, next(what));
  Result<T> value = parse(word.text);
  if (!value.ok()) return error(word.line, fmt::format("{}: {}", what, value.error().message()));
  return value;
}

Status SimaiReader::read_header() {
  THALWEG_TRY(const std::int64_t nodes, whole("the number of nodes", 1, kMaxNodes));
  THALWEG_TRY(gpus_per_server_, whole("the number of GPUs a server", 1, nodes));
  THALWEG_TRY(nvswitch_count_, whole("the number of NVSwitches", 0, nodes));
  THALWEG_TRY(switch_count_, whole("the number of switches", 0, nodes - nvswitch_count_));
  THALWEG_TRY(link_count_, whole("the number of links", 0, kMaxLinks));
  THALWEG_TRY(const Word gpu_type, next("the type of GPU"));
  const std::int64_t gpus = nodes - nvswitch_count_ - switch_count_;
  if (gpus % gpus_per_server_ != 0) {
    return error(gpu_type.line,
                 fmt::format("{} GPUs do not fill servers of {}: {} nodes less {} "
                             "NVSwitches and {} switches must be a multiple",
                             gpus, gpus_per_server_, nodes, nvswitch_count_, switch_count_));
  }
  kinds_.assign(static_cast<std::size_t>(nodes), Kind::kGpu);
  return ok_status();
}

Status SimaiReader::read_switches(std::int64_t count, Kind kind, std::string_view what) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto last_id = static_cast<std::int64_t>(kinds_.size()) - 1;
    THALWEG_TRY(const std::int64_t id, whole(what, 0, last_id));
    Kind& slot = kinds_[static_cast<std::size_t>(id)];
    if (slot != Kind::kGpu) {
      return error(words_[next_ - 1].line, fmt::format("{} '{}' is listed twice", what, id));
    }
    slot = kind;
  }
  return ok_status();
}

// Loss is not a property of a topology here; a file that states a loss would silently not get it.
Status SimaiReader::read_error_rate() {
  THALWEG_TRY(const Word word, next("the error rate of a link"));
  double rate = 0;
  const char* const end = word.text.data() + word.text.size();
  const auto [rest, failure] =
      std::from_chars(word.text.data(), word.text.data() + word.text.size(), rate);
  if (failure == std::errc{} && rest == end && rate == 0) return ok_status();
  return error(word.line, fmt::format("error rate '{}' is not 0: loss is set with the faults of a "
                                      "simulation, not in the topology",
                                      word.text));
}

Result<ParsedLink> SimaiReader::read_link() {
  const auto last_id = static_cast<std::int64_t>(kinds_.size()) - 1;
  ParsedLink link;
  THALWEG_TRY(const std::int64_t source, whole("the source of a link", 0, last_id));
  link.line = words_[next_ - 1].line;
  THALWEG_TRY(const std::int64_t target, whole("the target of a link", 0, last_id));
  THALWEG_TRY(link.spec.rate, quantity("the rate of a link", parse_bandwidth));
  THALWEG_TRY(link.spec.delay, quantity("the delay of a link", parse_duration));
  THALWEG_TRY_STATUS(read_error_rate());
  link.source = static_cast<std::size_t>(source);
  link.target = static_cast<std::size_t>(target);
  return link;
}

// Finds the server of every GPU by its number among the GPUs, and of every NVSwitch by its links.
void SimaiReader::place_switches() {
  constexpr std::int64_t kNone = -1;
  constexpr std::int64_t kNotSeen = -2;
  servers_.assign(kinds_.size(), kNone);
  has_nvswitch_.assign(kinds_.size(), false);
  nics_.assign(kinds_.size(), 0);
  std::int64_t gpu = 0;
  for (std::size_t id = 0; id < kinds_.size(); ++id) {
    if (kinds_[id] == Kind::kGpu) servers_[id] = gpu++ / gpus_per_server_;
    if (kinds_[id] == Kind::kNvSwitch) servers_[id] = kNotSeen;
  }
  for (const ParsedLink& link : links_) {
    for (const auto& [nvswitch, peer] :
         {std::pair(link.source, link.target), std::pair(link.target, link.source)}) {
      if (kinds_[nvswitch] != Kind::kNvSwitch || kinds_[peer] != Kind::kGpu) continue;
      has_nvswitch_[peer] = true;
      std::int64_t& server = servers_[nvswitch];
      server = server == kNotSeen || server == servers_[peer] ? servers_[peer] : kNone;
    }
  }
  for (std::int64_t& server : servers_) server = std::max(server, kNone);
}

Status SimaiReader::add_nodes(TopologyBuilder& builder) {
  for (std::size_t id = 0; id < kinds_.size(); ++id) {
    const std::int64_t server = servers_[id];
    while (server >= static_cast<std::int64_t>(regions_.size())) {
      THALWEG_TRY(const RegionId added,
                  builder.add_region(fmt::format("server{}", regions_.size()), kWholeNetwork));
      regions_.push_back(added);
    }
    const RegionId region = region_of(id);
    const std::string_view prefix = kinds_[id] == Kind::kGpu        ? "gpu"
                                    : kinds_[id] == Kind::kNvSwitch ? "nvswitch"
                                                                    : "switch";
    std::string name = fmt::format("{}{}", prefix, id);
    THALWEG_TRY(const NodeId node, kinds_[id] == Kind::kGpu
                                       ? builder.add_host(std::move(name), region)
                                       : builder.add_switch(std::move(name), region));
    nodes_.push_back(node);
  }
  return ok_status();
}

// The node at which a link of `id` to `peer` ends: the node of the id, or a new NIC.
Result<NodeId> SimaiReader::end_of_link(TopologyBuilder& builder, std::size_t id, std::size_t peer,
                                        const LinkSpec& spec) {
  if (!has_nvswitch_[id] || kinds_[peer] == Kind::kNvSwitch) return nodes_[id];
  THALWEG_TRY(const NodeId nic,
              builder.add_switch(fmt::format("gpu{}-nic{}", id, nics_[id]++), region_of(id)));
  THALWEG_TRY([[maybe_unused]] const LinkId link,
              builder.add_link(nodes_[id], nic, {spec.rate, Duration(), spec.buffer}));
  return nic;
}

Status SimaiReader::add_link(TopologyBuilder& builder, const ParsedLink& link) {
  if (link.source == link.target) {
    return Error(fmt::format("link {0} – {0} joins a node to itself", link.source));
  }
  THALWEG_TRY(const NodeId a, end_of_link(builder, link.source, link.target, link.spec));
  THALWEG_TRY(const NodeId b, end_of_link(builder, link.target, link.source, link.spec));
  THALWEG_TRY([[maybe_unused]] const LinkId id, builder.add_link(a, b, link.spec));
  return ok_status();
}

Result<Topology> SimaiReader::read() {
  THALWEG_TRY_STATUS(read_header());
  THALWEG_TRY_STATUS(read_switches(nvswitch_count_, Kind::kNvSwitch, "the id of an NVSwitch"));
  THALWEG_TRY_STATUS(read_switches(switch_count_, Kind::kSwitch, "the id of a switch"));
  for (std::int64_t i = 0; i < link_count_; ++i) {
    THALWEG_TRY(ParsedLink link, read_link());
    links_.push_back(link);
  }
  if (next_ < words_.size()) {
    return error(words_[next_].line, fmt::format("'{}' stands after the last of the {} links that "
                                                 "line 1 announces",
                                                 words_[next_].text, link_count_));
  }
  place_switches();
  TopologyBuilder builder(name_from_source(source_));
  const std::string place(source_);
  if (const Status added = add_nodes(builder); !added.ok()) return added.error().within(place);
  for (const ParsedLink& link : links_) {
    const Status added = add_link(builder, link);
    if (!added.ok()) return error(link.line, added.error().message());
  }
  Result<Topology> topology = std::move(builder).build();
  if (!topology.ok()) return topology.error().within(place);
  return topology;
}

}  // namespace

Result<Topology> topology_from_simai(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(check_text(text, source));
  return SimaiReader(text, source).read();
}

}  // namespace thalweg::topology
