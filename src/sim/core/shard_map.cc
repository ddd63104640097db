#include "sim/core/shard_map.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"

namespace thalweg::sim {
namespace {

topology::NodeId id_of(std::size_t node) {
  return topology::NodeId(static_cast<std::int32_t>(node));
}

}  // namespace

ShardMap::ShardMap(const topology::Topology& topology, std::size_t wanted)
    : lookahead_ps_(std::numeric_limits<std::int64_t>::max()),
      of_node_(topology.nodes().size(), kNoShard) {
  CHECK(wanted >= 1 && wanted <= kMaxShards, "{} shards", wanted);
  std::set<std::size_t> racks;
  for (std::size_t n = 0; n < of_node_.size(); ++n) {
    const auto arcs = topology.arcs_from(id_of(n));
    const bool host = topology.rank_of(id_of(n)).valid();
    const bool leaf =
        host && arcs.size() == 1 && !topology.rank_of(topology.arc(arcs[0]).to).valid();
    rack_of_node_.push_back(leaf ? topology.arc(arcs[0]).to.index() : n);
    if (host) racks.insert(rack_of_node_.back());
  }
  for (std::size_t a = 0; a < topology.arc_count(); ++a) {
    const topology::Arc arc = topology.arc(topology::ArcId(static_cast<std::int32_t>(a)));
    if (rack_of_node_[arc.from.index()] == rack_of_node_[arc.to.index()]) continue;
    lookahead_ps_ = std::min(lookahead_ps_, arc.spec.delay.ps());
  }
  count_ = lookahead_ps_ == 0 ? 1 : std::clamp<std::size_t>(racks.size(), 1, wanted);
  deal_racks(topology);
  deal_other_switches(topology);
  rates_.assign(count_, 0);
  for (const topology::Link& link : topology.links()) {
    for (const topology::NodeId end : {link.a, link.b}) {
      rates_[of_node_[end.index()]] += link.spec.rate.bytes_per_second();
    }
  }
}

// Neighbouring racks share a shard, and shards have nearly the same number of hosts.
void ShardMap::deal_racks(const topology::Topology& topology) {
  const auto hosts = static_cast<std::size_t>(topology.host_count());
  std::size_t dealt = 0;
  for (std::size_t r = 0; r < hosts; ++r) {
    const std::size_t node = topology.host(Rank(static_cast<std::int32_t>(r))).index();
    std::size_t& shard = of_node_[rack_of_node_[node]];
    if (shard == kNoShard) shard = std::min(dealt * count_ / hosts, count_ - 1);
    of_node_[node] = shard;
    ++dealt;
  }
}

// A switch whose neighbours are all in one shard joins them; the others are dealt in turn.
void ShardMap::deal_other_switches(const topology::Topology& topology) {
  std::size_t turn = 0;
  for (const bool shared : {false, true}) {
    for (std::size_t n = 0; n < of_node_.size(); ++n) {
      if (of_node_[n] != kNoShard) continue;
      std::set<std::size_t> neighbours;
      for (const topology::ArcId arc : topology.arcs_from(id_of(n))) {
        const std::size_t shard = of_node_[topology.arc(arc).to.index()];
        if (shard != kNoShard) neighbours.insert(shard);
      }
      if (neighbours.size() == 1) of_node_[n] = *neighbours.begin();
      if (neighbours.size() != 1 && shared) of_node_[n] = turn++ % count_;
    }
  }
}

}  // namespace thalweg::sim
