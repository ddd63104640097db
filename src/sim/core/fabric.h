// Links, ports and switches: takes a packet from a host and carries it, hop by hop, to another.
//
// Path of a packet: send() → enqueue() at the host's port → … an arrival event … → arrive() →
// forward() through the switch pipeline → enqueue() at the next port → … → arrive() returns true:
// the packet is at its host, and the caller owns it.
//
// Invariant: every packet of the pool is in exactly one place: waiting in a port's queues, under
// way with one valid arrival event, or in the hands of the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "sim/core/event_queue.h"
#include "sim/core/link_loss.h"
#include "sim/core/network.h"
#include "sim/core/packet_pool.h"
#include "sim/core/port.h"
#include "sim/core/post.h"
#include "sim/core/route_table.h"
#include "sim/core/shard_map.h"
#include "sim/core/switch_stage.h"
#include "switch/queueing/route.h"

namespace thalweg::sim {

class Fabric {
 public:
  // The topology, the events and the counters must outlive the fabric.
  Fabric(const topology::Topology& topology, const NetworkOptions& options, EventQueue& events,
         NetworkCounters& counters);
  // The same for one shard of a network: `post` takes the packets for other shards. Map and post
  // must outlive the fabric.
  Fabric(const topology::Topology& topology, const NetworkOptions& options, EventQueue& events,
         NetworkCounters& counters, const ShardMap& shards, std::size_t shard, Post& post);

  [[nodiscard]] PacketPool& pool() { return pool_; }
  [[nodiscard]] const RouteTable& routes() const { return routes_; }
  [[nodiscard]] const std::vector<std::uint64_t>& arc_bytes() const { return arc_bytes_; }
  [[nodiscard]] std::uint64_t queued_bytes(topology::ArcId arc) const;
  std::uint64_t take_queue_peak(topology::ArcId arc);
  [[nodiscard]] std::uint64_t drops_at(topology::ArcId arc) const {
    return ports_[arc.index()].drops;
  }
  // The most bytes that ever waited at the port of one host, and at any port.
  [[nodiscard]] std::uint64_t peak_host_backlog() const;
  [[nodiscard]] std::uint64_t peak_backlog() const;

  [[nodiscard]] int host_count() const { return topology_.host_count(); }
  [[nodiscard]] const std::string& name_of(Rank host) const {
    return topology_.node(topology_.host(host)).name;
  }
  [[nodiscard]] std::size_t node_of(Rank host) const { return topology_.host(host).index(); }
  // The sum of the rates of a host's links, as the topology gives them.
  [[nodiscard]] Bandwidth host_rate(Rank host) const;
  // How many equally short paths a label (switch/queueing/route.h) can tell apart between two
  // hosts, where all of them meet the same numbers of choices. 1 if there is no path.
  [[nodiscard]] std::uint32_t path_count(Rank source, Rank target) const;
  // A number that changes whenever routes change.
  [[nodiscard]] std::uint32_t routes_version() const { return routes_version_; }
  // Bytes that wait now at a host's ports.
  [[nodiscard]] std::uint64_t host_backlog(Rank host);
  // How long a host's ports need to send that many bytes; empty if the host is paused.
  [[nodiscard]] std::optional<Duration> time_to_drain(Rank host, std::uint64_t bytes) const;

  // Bytes of this socket's data that wait at its host's port, as NetworkOptions::socket_queue
  // counts them. `kind`: kData, and `flow` is the flow; or kDlcpData, and `flow` is that of its
  // packets. Always 0 where the network has no socket_queue.
  [[nodiscard]] std::uint64_t socket_backlog(PacketKind kind, FlowId flow) const;

  // Sends a packet from a host; the fabric owns the packet from here on.
  void send(Rank host, std::uint32_t packet);
  // Sets the stage that aggregation packets go through at switches. It must outlive all calls of
  // arrive() and restart_switch(). Null: switches only forward.
  void set_stage(SwitchStage* stage) { stage_ = stage; }
  // For the stage: passes a packet on from a node towards its target.
  void forward(std::uint32_t node, std::uint32_t place);
  // For the stage: passes a packet on by the port that feeds the arc.
  void send_by(std::uint32_t arc, std::uint32_t place) { enqueue(arc, place); }
  // For the stage: makes a copy of a packet in a switch, or a packet of another size from it.
  std::uint32_t copy(std::uint32_t place);
  std::uint32_t copy(std::uint32_t place, std::uint32_t wire_size);
  // For the stage: ends a packet in a switch.
  void absorb(std::uint32_t place);

  // Handles a kArrival event. Returns true if the packet event.subject has reached its host; the
  // caller owns it then.
  bool arrive(const Event& event);
  // Handles a kPortFree event.
  void on_port_free(const Event& event);
  // Handles a kDeparture event.
  void depart(const Event& event);
  // Takes a packet that another shard sent.
  void receive(const PacketLetter& letter);
  void prefetch(const Event& event) const;

  // Faults; see network.h.
  void set_loss(topology::ArcId arc, double probability);
  void set_bursty_loss(topology::ArcId arc, double good_packets, double bad_packets);
  void set_link_up(topology::LinkId link, bool up);
  // Returns the new rate.
  Bandwidth set_rate_factor(topology::LinkId link, double factor);
  // Holds for packets that are sent from now on.
  void set_delay(topology::LinkId link, Duration delay);
  void set_host_paused(Rank host, bool paused);
  void restart_switch(topology::NodeId node);

  // Appends a message for each invariant that does not hold.
  void check(std::vector<std::string>& violations) const;

 private:
  enum class DropReason : std::uint8_t { kFull, kSelective, kFault };

  void make_port(topology::ArcId arc, const QueueOptions& options);
  void enqueue(std::uint32_t arc, std::uint32_t place);
  // Returns false if the packet was dropped.
  bool admit(Port& port, std::uint32_t place, std::uint8_t queue);
  bool find_room(Port& port, const switches::QueueEntry& arrival);
  bool fits_shared(const Port& port, std::uint32_t size);
  void wait(Port& port, std::uint32_t arc, std::uint32_t place, std::uint8_t queue);
  void transmit(Port& port, std::uint32_t arc, std::uint32_t place, std::int64_t start_ps);
  // Sends a packet whose transmission has begun to the shard at the end of the arc.
  void post_packet(std::uint32_t arc, std::uint32_t place, std::int64_t arrival_ps);
  void drop_at(Port& port, std::uint32_t place, DropReason reason);
  // Drops a packet that is at no port, because there is no path to its target.
  void drop(std::uint32_t place, DropReason reason);

  // Removes the packets whose transmission has begun from the line of a committed port.
  void retire(Port& port);
  // Turns a committed port into a scheduled one.
  void uncommit(Port& port, std::uint32_t arc);
  void ask_when_free(Port& port, std::uint32_t arc);
  void add_waiting(Port& port, std::uint32_t size);
  void remove_waiting(Port& port, std::uint32_t size);
  // Removes a packet that was popped from the queues of a scheduled port.
  void remove_popped(Port& port, const switches::QueueEntry& entry);
  // The counter of the packet's socket; null if the packet does not count.
  [[nodiscard]] std::uint64_t* socket_of(const PooledPacket& packet);
  void drop_waiting(Port& port, std::uint32_t arc);
  void drop_under_way(std::uint32_t arc);
  LinkLoss& loss_of(topology::ArcId arc);
  [[nodiscard]] switches::QueueEntry entry_of(std::uint32_t place) const;
  void check_port(std::uint32_t arc, std::vector<std::string>& violations) const;
  void check_packets(std::vector<std::string>& violations) const;

  const topology::Topology& topology_;
  EventQueue& events_;
  NetworkCounters& counters_;
  Prng prng_;
  std::uint32_t framing_bytes_;
  switches::Discipline discipline_;  // of the switches' ports
  switches::AdmissionPolicy policy_;

  SwitchStage* stage_ = nullptr;
  const ShardMap* shards_ = nullptr;  // null: the fabric is the whole network
  Post* post_ = nullptr;
  int flow_shift_ = 0;  // see ShardMap::flow_shift()
  // Packets and bytes that other shards sent here, less those that left for other shards.
  std::int64_t packets_received_ = 0;
  std::int64_t bytes_received_ = 0;
  PacketPool pool_;
  std::vector<Port> ports_;  // by arc
  std::vector<std::uint64_t> arc_bytes_;
  RouteTable routes_;
  std::uint32_t routes_version_ = 1;
  std::vector<switches::PathChooser> choosers_;  // by node
  std::uint64_t shared_limit_;                   // bytes that may wait in a switch, over all ports
  std::vector<std::uint64_t> shared_bytes_;      // by node; counted only where there is a limit
  std::uint64_t shared_peak_ = 0;                // the most that any switch held
  std::vector<std::uint64_t> tcp_sockets_;       // by flow: bytes that wait at a counting port
  std::vector<std::uint64_t> dlcp_sockets_;      // the same by `flow` of DLCP's data packets
  std::vector<bool> link_up_;
  std::vector<std::unique_ptr<LinkLoss>> losses_;  // by arc, made when first needed
};

}  // namespace thalweg::sim
