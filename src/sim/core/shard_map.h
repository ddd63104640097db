// How a network is divided into shards that are simulated side by side (ADR 21).
//
// A shard is some racks, each a switch with its hosts, and a share of the other switches. What
// happens in one shard reaches another only over a link between switches (or of a host with
// several links), so not before that link's delay has passed. The least of these delays is the
// lookahead: for so long shards need not look at one another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace thalweg::sim {

inline constexpr std::size_t kMaxShards = 256;

class ShardMap {
 public:
  // Makes `wanted` shards (1 to kMaxShards), or fewer: no more than there are racks, and one if a
  // link between racks has no delay.
  ShardMap(const topology::Topology& topology, std::size_t wanted);

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t of_node(std::size_t node) const { return of_node_[node]; }
  // The least delay of a link that may lead from one shard to another, however the network is
  // divided. The largest time if there is no such link.
  [[nodiscard]] std::int64_t lookahead_ps() const { return lookahead_ps_; }
  // The numbers of the flows that start in a shard have the shard's number in so many lowest bits.
  [[nodiscard]] int flow_shift() const { return static_cast<int>(std::bit_width(count_ - 1)); }
  // The sum of the rates of the links that the shard's nodes feed, in bytes per second.
  [[nodiscard]] double bytes_per_second(std::size_t shard) const { return rates_[shard]; }

 private:
  void deal_racks(const topology::Topology& topology);
  void deal_other_switches(const topology::Topology& topology);

  static constexpr std::size_t kNoShard = ~std::size_t{0};

  std::size_t count_ = 1;
  std::int64_t lookahead_ps_;
  std::vector<std::size_t> rack_of_node_;  // the switch of a host with one link; else the node
  std::vector<std::size_t> of_node_;
  std::vector<double> rates_;  // by shard
};

}  // namespace thalweg::sim
