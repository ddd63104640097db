// A Topology as ns-3 nodes and point-to-point links.
//
// A port without marking is a device with a drop-tail queue and no queue disc, so that its limit is
// exact. A port that marks is a RED queue disc used as a step at K, in front of a device queue of
// one packet, the least that ns-3 allows. That packet waits as those of the disc do, so the disc's
// limits are one full packet below what PeerOptions says of the port.
#pragma once

#include <ns3/node.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-disc.h>

#include <cstdint>
#include <vector>

#include "path_routing.h"
#include "scenario.h"
#include "topology/topology.h"

namespace thalweg {

struct FabricCounters {
  std::uint64_t packet_hops = 0;  // packets that a device has put on its wire, acks included
  std::uint64_t wire_bytes = 0;   // of those, PPP's two included
  std::uint64_t drops = 0;
  std::uint64_t marks = 0;
};

class Fabric {
 public:
  // Equal shortest paths are numbered in the order of the links of each node; a node with fewer
  // than `path_count` of them uses the remainder.
  Fabric(const topology::Topology& topology, const PeerOptions& options, int path_count);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  [[nodiscard]] ns3::Ptr<ns3::Node> host(Rank rank) const;
  // Counts from now on.
  void reset_counters();
  [[nodiscard]] FabricCounters counters() const;
  // Packets waiting at the fullest switch port, the one on the wire not counted.
  [[nodiscard]] std::uint32_t longest_queue() const;

 private:
  struct Port {
    ns3::Ptr<ns3::PointToPointNetDevice> device;
    ns3::Ptr<ns3::QueueDisc> disc;  // null where the port does not mark
    bool of_switch = false;
  };

  void add_nodes();
  void add_links();
  void add_routes();
  Port make_port(const topology::Arc& arc);
  void add_disc(Port& port, const topology::Arc& arc);
  void add_interface(const Port& port, topology::NodeId node);
  void on_transmitted(ns3::Ptr<const ns3::Packet> packet);
  [[nodiscard]] FabricCounters totals() const;

  const topology::Topology& topology_;
  const PeerOptions& options_;
  int path_count_;
  std::vector<ns3::Ptr<ns3::Node>> nodes_;      // by NodeId
  std::vector<ns3::Ptr<PathRouting>> routing_;  // by NodeId
  std::vector<Port> ports_;                     // by ArcId
  FabricCounters transmitted_;
  FabricCounters at_reset_;
};

}  // namespace thalweg
