// htsim's fat-tree description (https://github.com/Broadcom/csg-htsim, FatTreeTopology::load): a
// header, then one block per tier, with one "key value" per line, keys in upper or lower case, and
// # for comments.
//
// Tier 0 are the ToRs, the highest tier the spines or cores. The downlinks of a tier are its links
// to the tier below. htsim has a latency per switch; we have none, so half of it is added to the
// delay of every link of the switch: a path enters and leaves each switch once, so the sum is the
// same.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "topology/format/htsim_tree.h"
#include "topology/format/load.h"
#include "topology/format/text.h"

namespace thalweg::topology {
namespace {

constexpr std::array<std::string_view, 3> kHeaderKeys{"nodes", "tiers", "podsize"};

enum TierKey : std::uint8_t {
  kSpeed,
  kRadixUp,
  kRadixDown,
  kQueueUp,
  kQueueDown,
  kOversubscribed,
  kBundle,
  kSwitchLatency,
  kDownlinkLatency,
  kTierKeyCount,
};

struct TierKeySpec {
  std::string_view name;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kMaxDelayNs = kMaxDelay.ps() / 1000 / 4;
constexpr std::array<TierKeySpec, kTierKeyCount> kTierKeys{{
    {"downlink_speed_gbps", 1, kMaxRate.bps() / 1'000'000'000},
    {"radix_up", 1, kMaxNodes},
    {"radix_down", 1, kMaxNodes},
    {"queue_up", 1, kMaxBuffer.count()},
    {"queue_down", 1, kMaxBuffer.count()},
    {"oversubscribed", 1, kMaxNodes},
    {"bundle", 1, kMaxNodes},
    {"switch_latency_ns", 0, kMaxDelayNs},
    {"downlink_latency_ns", 1, kMaxDelayNs},
}};

struct Setting {
  std::int64_t value = 0;
  int line = 0;
};

using TierSettings = std::array<std::optional<Setting>, kTierKeyCount>;

class HtsimReader {
 public:
  HtsimReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Result<Topology> read();

 private:
  [[nodiscard]] Error error(int line, std::string_view message) const {
    return error_at(source_, line, message);
  }
  Status read_lines();
  Status read_line(std::string_view key, std::string_view value, int line);
  Status read_tier_key(std::string_view key, std::string_view value, int line);
  Status check_present() const;
  Status check_divides(std::size_t tier, TierKey key, std::int64_t divisor,
                       std::string_view what) const;
  Status check_radix_down(std::size_t tier, std::int64_t below, std::string_view what) const;
  Status check_oversubscription(std::size_t tier) const;
  Result<HtsimTree> tree() const;
  Result<LinkSpec> downlink(std::size_t tier) const;

  [[nodiscard]] std::size_t tier_count() const { return static_cast<std::size_t>(tiers_->value); }
  [[nodiscard]] const Setting& get(std::size_t tier, TierKey key) const {
    return *settings_[tier][key];
  }
  [[nodiscard]] std::int64_t get_or(std::size_t tier, TierKey key, std::int64_t otherwise) const {
    const std::optional<Setting>& setting = settings_[tier][key];
    return setting ? setting->value : otherwise;
  }

  std::string_view text_;
  std::string_view source_;
  std::optional<Setting> nodes_;
  std::optional<Setting> tiers_;
  std::optional<Setting> podsize_;
  std::array<TierSettings, 3> settings_;
  std::array<int, 3> tier_lines_{};
  std::optional<std::size_t> current_tier_;
};

std::string lower_case(std::string_view word) {
  std::string result(word);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

Status HtsimReader::read_lines() {
  std::string_view rest = text_;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    const std::vector<Word> words = split_words(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (words.empty() || words[0].text.starts_with('#')) continue;
    if (words.size() != 2) {
      return error(line, fmt::format("'{}' has {} values where one is expected", words[0].text,
                                     words.size() - 1));
    }
    THALWEG_TRY_STATUS(read_line(lower_case(words[0].text), words[1].text, line));
  }
  return ok_status();
}

Status HtsimReader::read_line(std::string_view key, std::string_view value, int line) {
  if (key == "tier") {
    const Result<std::int64_t> tier = parse_whole("tier", value, 0, 2);
    if (!tier.ok()) return error(line, tier.error().message());
    current_tier_ = static_cast<std::size_t>(*tier);
    int& first_line = tier_lines_[*current_tier_];
    if (first_line != 0) {
      return error(line,
                   fmt::format("tier {} is described twice; first at line {}", *tier, first_line));
    }
    first_line = line;
    return ok_status();
  }
  if (current_tier_) return read_tier_key(key, value, line);
  std::optional<Setting>* const slot = key == "nodes"     ? &nodes_
                                       : key == "tiers"   ? &tiers_
                                       : key == "podsize" ? &podsize_
                                                          : nullptr;
  if (slot == nullptr) {
    return error(line, fmt::format("unknown key '{}' in the header; keys: {}, then tier", key,
                                   fmt::join(kHeaderKeys, ", ")));
  }
  if (*slot) {
    return error(line, fmt::format("'{}' is given twice; first at line {}", key, (*slot)->line));
  }
  const bool tiers = slot == &tiers_;
  const Result<std::int64_t> number = parse_whole(key, value, tiers ? 2 : 1, tiers ? 3 : kMaxNodes);
  if (!number.ok()) return error(line, number.error().message());
  *slot = Setting{*number, line};
  return ok_status();
}

Status HtsimReader::read_tier_key(std::string_view key, std::string_view value, int line) {
  const auto spec = std::find_if(kTierKeys.begin(), kTierKeys.end(),
                                 [&](const TierKeySpec& s) { return s.name == key; });
  if (spec == kTierKeys.end()) {
    std::vector<std::string_view> names;
    names.reserve(kTierKeys.size());
    for (const TierKeySpec& s : kTierKeys) names.push_back(s.name);
    return error(line,
                 fmt::format("unknown key '{}' of a tier; keys: {}", key, fmt::join(names, ", ")));
  }
  std::optional<Setting>& slot =
      settings_[*current_tier_][static_cast<std::size_t>(spec - kTierKeys.begin())];
  if (slot) {
    return error(line, fmt::format("'{}' is given twice for tier {}; first at line {}", key,
                                   *current_tier_, slot->line));
  }
  const Result<std::int64_t> number = parse_whole(key, value, spec->least, spec->most);
  if (!number.ok()) return error(line, number.error().message());
  slot = Setting{*number, line};
  return ok_status();
}

Status HtsimReader::check_present() const {
  for (const auto& [setting, key] : {std::pair(&nodes_, "nodes"), std::pair(&tiers_, "tiers"),
                                     std::pair(&podsize_, "podsize")}) {
    if (!*setting) return Error(fmt::format("{}: the header has no '{}'", source_, key));
  }
  if (tier_count() == 2 && tier_lines_[2] != 0) {
    return error(tier_lines_[2], "tier 2 is described, but the header says 2 tiers");
  }
  for (std::size_t tier = 0; tier < tier_count(); ++tier) {
    const int line = tier_lines_[tier];
    if (line == 0) return Error(fmt::format("{}: tier {} is not described", source_, tier));
    const bool top = tier + 1 == tier_count();
    for (const TierKey key : {kSpeed, kRadixDown, kDownlinkLatency, kRadixUp}) {
      if (settings_[tier][key] || (top && key == kRadixUp)) continue;
      return error(line, fmt::format("tier {} has no '{}'", tier, kTierKeys[key].name));
    }
    for (const TierKey key : {kRadixUp, kQueueUp, kOversubscribed}) {
      const bool says_nothing = key == kOversubscribed && get_or(tier, key, 1) == 1;
      if (!top || !settings_[tier][key] || says_nothing) continue;
      return error(get(tier, key).line, fmt::format("'{}' of tier {}: the highest tier has no "
                                                    "uplinks",
                                                    kTierKeys[key].name, tier));
    }
  }
  return ok_status();
}

Status HtsimReader::check_divides(std::size_t tier, TierKey key, std::int64_t divisor,
                                  std::string_view what) const {
  const Setting& setting = get(tier, key);
  if (setting.value % divisor == 0) return ok_status();
  return error(setting.line, fmt::format("'{}' {} of tier {} is not a multiple of {} {}",
                                         kTierKeys[key].name, setting.value, tier, what, divisor));
}

Status HtsimReader::check_radix_down(std::size_t tier, std::int64_t below,
                                     std::string_view what) const {
  const Setting& radix = get(tier, kRadixDown);
  if (radix.value == below) return ok_status();
  return error(radix.line, fmt::format("'radix_down' {} of tier {} does not fit the {} links from "
                                       "{}",
                                       radix.value, tier, below, what));
}

// htsim derives the number of uplinks from the oversubscription; we take it from the radix, so the
// two must agree.
Status HtsimReader::check_oversubscription(std::size_t tier) const {
  const std::int64_t down = get(tier, kRadixDown).value * get(tier, kSpeed).value;
  const std::int64_t up = get(tier, kRadixUp).value * get(tier + 1, kSpeed).value;
  const std::int64_t stated = get_or(tier, kOversubscribed, 1);
  if (down == up * stated) return ok_status();
  const auto& given = settings_[tier][kOversubscribed];
  return error(
      given ? given->line : tier_lines_[tier],
      fmt::format("'oversubscribed' {} of tier {} does not fit {} Gb/s down and {} Gb/s up "
                  "(radix times speed)",
                  stated, tier, down, up));
}

Result<HtsimTree> HtsimReader::tree() const {
  const bool three = tier_count() == 3;
  if (nodes_->value % podsize_->value != 0) {
    return error(podsize_->line, fmt::format("'podsize' {} does not divide the {} nodes",
                                             podsize_->value, nodes_->value));
  }
  if (!three && podsize_->value != nodes_->value) {
    return error(podsize_->line, fmt::format("'podsize' {} must be all {} nodes with two tiers",
                                             podsize_->value, nodes_->value));
  }
  if (get_or(0, kBundle, 1) != 1) {
    return error(get(0, kBundle).line, "'bundle' of tier 0 must be 1: a host has one link");
  }
  HtsimTree tree;
  tree.tiers = tiers_->value;
  tree.pods = nodes_->value / podsize_->value;
  tree.hosts = get(0, kRadixDown).value;
  if (podsize_->value % tree.hosts != 0) {
    return error(podsize_->line, fmt::format("'podsize' {} is not a multiple of the {} hosts a ToR "
                                             "('radix_down' of tier 0)",
                                             podsize_->value, tree.hosts));
  }
  tree.tors = podsize_->value / tree.hosts;
  tree.upper_bundle = get_or(1, kBundle, 1);
  THALWEG_TRY_STATUS(check_divides(0, kRadixUp, tree.upper_bundle, "the bundle of tier 1,"));
  tree.uppers = get(0, kRadixUp).value / tree.upper_bundle;
  THALWEG_TRY_STATUS(check_radix_down(1, tree.tors * tree.upper_bundle, "the ToRs of a pod"));
  THALWEG_TRY_STATUS(check_oversubscription(0));
  THALWEG_TRY(tree.host_link, downlink(0));
  THALWEG_TRY(tree.upper_link, downlink(1));
  if (!three) return tree;
  tree.core_bundle = get_or(2, kBundle, 1);
  THALWEG_TRY_STATUS(check_divides(1, kRadixUp, tree.core_bundle, "the bundle of tier 2,"));
  tree.cores_an_upper = get(1, kRadixUp).value / tree.core_bundle;
  THALWEG_TRY_STATUS(check_radix_down(2, tree.pods * tree.core_bundle, "the pods"));
  THALWEG_TRY_STATUS(check_oversubscription(1));
  THALWEG_TRY(tree.core_link, downlink(2));
  return tree;
}

Result<LinkSpec> HtsimReader::downlink(std::size_t tier) const {
  LinkSpec spec;
  spec.rate = Bandwidth::gbps(get(tier, kSpeed).value);
  const std::int64_t above_ps = get_or(tier, kSwitchLatency, 0) * 500;
  const std::int64_t below_ps = tier == 0 ? 0 : get_or(tier - 1, kSwitchLatency, 0) * 500;
  spec.delay = Duration::nanoseconds(get(tier, kDownlinkLatency).value) +
               Duration::picoseconds(above_ps + below_ps);
  spec.buffer = Bytes(get_or(tier, kQueueDown, 0));
  if (tier > 0 && settings_[tier - 1][kQueueUp]) {
    const Setting& up = get(tier - 1, kQueueUp);
    if (settings_[tier][kQueueDown] && up.value != spec.buffer.count()) {
      return error(up.line, fmt::format("'queue_up' {} of tier {} and 'queue_down' {} of tier {} "
                                        "differ: a link has one buffer size here",
                                        up.value, tier - 1, spec.buffer.count(), tier));
    }
    spec.buffer = Bytes(up.value);
  }
  return spec;
}

Result<Topology> HtsimReader::read() {
  THALWEG_TRY_STATUS(read_lines());
  THALWEG_TRY_STATUS(check_present());
  THALWEG_TRY(const HtsimTree described, tree());
  Result<Topology> topology = build_htsim_tree(described, name_from_source(source_));
  if (!topology.ok()) return topology.error().within(std::string(source_));
  return topology;
}

}  // namespace

Result<Topology> topology_from_htsim(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(check_text(text, source));
  return HtsimReader(text, source).read();
}

}  // namespace thalweg::topology
