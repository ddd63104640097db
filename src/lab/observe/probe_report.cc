#include "lab/observe/probe_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "lab/console.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

// The ranks of a region, with blanks between them.
std::string members(const topology::ProbedTopology& probed, int region) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < probed.region_of.size(); ++h) {
    if (probed.region_of[h] == region) hosts.push_back(static_cast<int>(h));
  }
  return fmt::format("{}", fmt::join(hosts, " "));
}

}  // namespace

std::string probe_table(const topology::ProbedTopology& probed,
                        const std::vector<topology::ProbeSample>& samples) {
  struct Span {
    Duration least = Duration::seconds(1e6);
    Bandwidth slowest = Bandwidth::gbps(1'000'000);
    Bandwidth fastest;
  };
  // One within each region, and then one between regions.
  std::vector<Span> spans(static_cast<std::size_t>(probed.regions) + 1);
  for (const topology::ProbeSample& s : samples) {
    const int from = probed.region_of[static_cast<std::size_t>(s.from)];
    const bool same = from == probed.region_of[static_cast<std::size_t>(s.to)];
    Span& span = spans[static_cast<std::size_t>(same ? from : probed.regions)];
    span.least = std::min(span.least, s.round_trip);
    span.slowest = std::min(span.slowest, s.rate);
    span.fastest = std::max(span.fastest, s.rate);
  }
  std::vector<std::vector<std::string>> rows = {
      {"", "ranks", "round trip from", "rate from", "to"}};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const bool between = i + 1 == spans.size();
    if (spans[i].fastest == Bandwidth() && between) continue;
    const bool alone = spans[i].fastest == Bandwidth();
    rows.push_back({between ? "between" : fmt::format("region {}", i),
                    between ? "" : members(probed, static_cast<int>(i)),
                    alone ? "" : to_human(spans[i].least), alone ? "" : to_string(spans[i].slowest),
                    alone ? "" : to_string(spans[i].fastest)});
  }
  return format_table(rows);
}

nlohmann::ordered_json probe_json(const topology::ProbedTopology& probed,
                                  const std::vector<topology::ProbeSample>& samples) {
  nlohmann::ordered_json json;
  json["ranks"] = probed.region_of.size();
  json["regions"] = probed.regions;
  json["region_of"] = probed.region_of;
  json["confidence"] = probed.confidence;
  json["by"] = probed.by;
  json["reason"] = probed.reason;
  json["topology"] = topology::topology_to_yaml(probed.topology);
  json["samples"] = nlohmann::ordered_json::array();
  for (const topology::ProbeSample& s : samples) {
    json["samples"].push_back({{"round", s.round},
                               {"from", s.from},
                               {"to", s.to},
                               {"round_trip_us", s.round_trip.us()},
                               {"rate_bps", s.rate.bps()}});
  }
  return json;
}

}  // namespace thalweg::lab
