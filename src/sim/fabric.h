// Links, ports and switches: takes a packet from a host and carries it, hop by hop, to another.
//
// Path of a packet: send() → enqueue() at the host's port → … an arrival event … → arrive() →
// forward() through the switch pipeline → enqueue() at the next port → … → arrive() returns true:
// the packet is at its host, and the caller's.
//
// Invariant: every packet of the pool is in one place: waiting in a port's queues, under way with
// one valid arrival event, or in the hands of the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "sim/event_queue.h"
#include "sim/link_loss.h"
#include "sim/network.h"
#include "sim/packet_pool.h"
#include "sim/port.h"
#include "sim/route_table.h"
#include "sim/switch_stage.h"
#include "switch/route.h"

namespace thalweg {

class Fabric {
 public:
  // All three must outlive the fabric.
  Fabric(const Topology& topology, const NetworkOptions& options, EventQueue& events,
         NetworkCounters& counters);

  [[nodiscard]] PacketPool& pool() { return pool_; }
  [[nodiscard]] const RouteTable& routes() const { return routes_; }
  [[nodiscard]] const std::vector<std::uint64_t>& arc_bytes() const { return arc_bytes_; }
  [[nodiscard]] std::uint64_t queued_bytes(ArcId arc) const;
  std::uint64_t take_queue_peak(ArcId arc);
  [[nodiscard]] std::uint64_t drops_at(ArcId arc) const { return ports_[arc.index()].drops; }
  // The most bytes that waited at the port of a host.
  [[nodiscard]] std::uint64_t peak_host_backlog() const;

  [[nodiscard]] int host_count() const { return topology_.host_count(); }
  [[nodiscard]] const std::string& name_of(Rank host) const {
    return topology_.node(topology_.host(host)).name;
  }
  // Of a host's links together, as the topology has them.
  [[nodiscard]] Bandwidth host_rate(Rank host) const;
  // Equally short paths between two hosts, where every path meets the same numbers of choices: what
  // labels (switch/route.h) tell apart. 1 if there is no way.
  [[nodiscard]] std::uint32_t path_count(Rank source, Rank target) const;
  // Changes whenever routes do.
  [[nodiscard]] std::uint32_t routes_version() const { return routes_version_; }
  // Bytes that wait now at a host's ports.
  [[nodiscard]] std::uint64_t host_backlog(Rank host);
  // How long a host's ports need to send that much; nothing if it is paused.
  [[nodiscard]] std::optional<Duration> time_to_drain(Rank host, std::uint64_t bytes) const;

  // A host sends a packet; the fabric owns it from here on.
  void send(Rank host, std::uint32_t packet);
  // Who looks into packets for the stage; must outlive all calls of arrive() and restart_switch().
  // Null: nobody.
  void set_stage(SwitchStage* stage) { stage_ = stage; }
  // For the stage. Passes a packet on from a node towards its target.
  void forward(std::uint32_t node, std::uint32_t place);
  // Passes a packet on by that port.
  void send_by(std::uint32_t arc, std::uint32_t place) { enqueue(arc, place); }
  // A copy of a packet, made in a switch.
  std::uint32_t copy(std::uint32_t place);
  // The end of a packet in a switch.
  void absorb(std::uint32_t place);

  // A kArrival event. True: the packet event.subject has reached its host and is the caller's.
  bool arrive(const Event& event);
  // A kPortFree event.
  void on_port_free(const Event& event);
  void prefetch(const Event& event) const;

  // Faults; see network.h.
  void set_loss(ArcId arc, double probability);
  void set_bursty_loss(ArcId arc, double good_packets, double bad_packets);
  void set_link_up(LinkId link, bool up);
  // Returns the new rate.
  Bandwidth set_rate_factor(LinkId link, double factor);
  // For packets that are sent from now on.
  void set_delay(LinkId link, Duration delay);
  void set_host_paused(Rank host, bool paused);
  void restart_switch(NodeId node);

  // Appends what is wrong.
  void check(std::vector<std::string>& violations) const;

 private:
  enum class DropReason : std::uint8_t { kFull, kSelective, kFault };

  void make_port(ArcId arc, const QueueOptions& options);
  void enqueue(std::uint32_t arc, std::uint32_t place);
  // False: the packet was dropped.
  bool admit(Port& port, std::uint32_t place, std::uint8_t queue);
  bool find_room(Port& port, const QueueEntry& arrival);
  bool fits_shared(const Port& port, std::uint32_t size);
  void wait(Port& port, std::uint32_t arc, std::uint32_t place, std::uint8_t queue);
  void transmit(Port& port, std::uint32_t arc, std::uint32_t place, std::int64_t start_ps);
  void drop_at(Port& port, std::uint32_t place, DropReason reason);
  // Of a packet that is at no port: there is no way to its target.
  void drop(std::uint32_t place, DropReason reason);

  // Drops what has begun transmission from the line of a committed port.
  void retire(Port& port);
  // From committed to scheduled.
  void uncommit(Port& port, std::uint32_t arc);
  void ask_when_free(Port& port, std::uint32_t arc);
  void add_waiting(Port& port, std::uint32_t size);
  void remove_waiting(Port& port, std::uint32_t size);
  void drop_waiting(Port& port, std::uint32_t arc);
  void drop_under_way(std::uint32_t arc);
  LinkLoss& loss_of(ArcId arc);
  [[nodiscard]] QueueEntry entry_of(std::uint32_t place) const;
  void check_port(std::uint32_t arc, std::vector<std::string>& violations) const;
  void check_packets(std::vector<std::string>& violations) const;

  const Topology& topology_;
  EventQueue& events_;
  NetworkCounters& counters_;
  Prng prng_;
  std::uint32_t framing_bytes_;
  Discipline discipline_;  // of switches
  AdmissionPolicy policy_;

  SwitchStage* stage_ = nullptr;
  PacketPool pool_;
  std::vector<Port> ports_;  // by arc
  std::vector<std::uint64_t> arc_bytes_;
  RouteTable routes_;
  std::uint32_t routes_version_ = 1;
  std::vector<PathChooser> choosers_;        // by node
  std::uint64_t shared_limit_;               // bytes that may wait in a switch, over all ports
  std::vector<std::uint64_t> shared_bytes_;  // by node; counted only where there is a limit
  std::uint64_t shared_peak_ = 0;            // of any switch
  std::vector<bool> link_up_;
  std::vector<std::unique_ptr<LinkLoss>> losses_;  // by arc, made when first needed
};

}  // namespace thalweg
