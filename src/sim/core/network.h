// The simulated network as workloads see it: they start flows, learn when these end, and let time
// run.
//
// Everything below (hosts, NICs, switches, links, transports) is driven by one event queue in one
// thread. The same topology, options, seed and calls give the same result, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "exec/extent.h"
#include "sim/hosts/transport.h"
#include "topology/routing.h"
#include "topology/topology.h"

namespace thalweg::sim {

enum class LoadBalancing : std::uint8_t {
  kFlowHash,   // ECMP: a flow keeps one path, chosen by a hash salted per switch
  kPerPacket,  // every packet takes the next of the equal paths by random choice
  kLabel,      // source routing: a flow's sender deals its packets over all paths in turn
};

// What the egress ports of switches do; the same in the whole network.
struct QueueOptions {
  enum class Discipline : std::uint8_t {
    kFifo,            // one queue
    kStrictPriority,  // 8 queues, 0 first
    kPFabric,         // smallest rank_in_queue first; the largest is dropped when full
  };
  Discipline discipline = Discipline::kFifo;
  // Bytes that may wait at a port, over all its queues; 0: the buffer that the topology gives the
  // link, or no limit if it gives none. A packet being transmitted does not count.
  Bytes port_buffer;
  // Bytes that may wait in a switch, over all its ports, in addition to each port's limit; 0: no
  // limit.
  Bytes shared_buffer;
  // An ECN-capable packet is marked on arrival when more than this waits: in the port for kFifo,
  // and for strict priority with per_port_marking; else in the packet's queue. 0: never.
  Bytes mark_above;
  bool per_port_marking = true;
  // DLCP: above queue q's threshold T·(1 + (q−1)·step) packets that are not ECN-capable are dropped
  // and capable ones marked; queue 0 carries control and is exempt. 0: off.
  Bytes selective_threshold;
  double selective_step = 0;
  // Thresholds of the data queues, one by one, instead of that formula; empty: the formula holds.
  std::vector<Bytes> selective_thresholds;
  // A packet that finds more than this waiting in its data queue is dropped; empty: no limits.
  std::vector<Bytes> queue_limits;
  // Bytes of a port's buffer that only queue 0 may use, so that data does not crowd out control.
  Bytes control_reserve;
};

// Which switches sum packets that pass through them (sim/atp), and with how much memory.
struct AggregationOptions {
  std::uint32_t slots = 0;      // per switch: packets that it can sum at a time; 0: no switch sums
  std::uint32_t elements = 64;  // the most elements of a packet that a switch sums
  std::vector<topology::NodeId> switches;
  // As in switch/aggregation/aggregate.h.
  Duration lifetime = Duration::milliseconds(1'000);
  bool hash_sequences = false;
  bool pass_second_level_resends = false;
};

struct NetworkOptions {
  QueueOptions queues;
  AggregationOptions aggregation;
  LoadBalancing balancing = LoadBalancing::kFlowHash;
  // Bytes of framing that every packet adds on a link (Ethernet preamble, header, FCS, gap); they
  // take time but do not count as buffer.
  std::uint32_t framing_bytes = 0;
  // Once this many bytes wait at a host's port, its senders are not asked for more, as Linux' small
  // queues do. What the senders have waits with them, and they take turns, one packet each.
  // Acknowledgements are always sent. 0: no limit, senders hand over all that their windows allow.
  // pFabric's hosts, which order packets by rank, have no limit.
  Bytes host_queue;
  // The most bytes of one socket that wait at its host's port; 0: no limit of this kind. A socket
  // is a flow, or over DLCP all flows from one host to another. A socket at its limit gets its next
  // turn when half of this has left the port, and then fills its queue again: bursts as those of
  // TCP segmentation offload. Acknowledgements and control messages do not count. Not together with
  // host_queue; hosts of aggregation (sim/atp) have no such limit.
  Bytes socket_queue;
  std::uint64_t seed = 1;
};

// A job whose tensors are summed in switches.
struct AggregationSpec {
  const TransportFactory* transport = nullptr;  // atp or switchml
  std::vector<Rank> workers;
  std::vector<Rank> servers;     // none for SwitchML, where the switch is the server
  std::uint32_t slot_limit = 0;  // the most slots that the job takes in one switch; 0: no limit
};

// What became of a job's packets.
struct AggregationCounters {
  std::uint64_t sent = 0;  // by workers, retransmissions included
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t marks = 0;         // sums that reported congestion, over all workers
  std::uint64_t aggregated = 0;    // packets that switches added to a sum
  std::uint64_t completed = 0;     // sums that left a switch complete
  std::uint64_t collisions = 0;    // packets that found no slot
  std::uint64_t forwarded = 0;     // packets that switches passed on because `forwarding` says so
  std::uint64_t partial_sums = 0;  // sums that a retransmission took out of a switch incomplete
  std::uint64_t expired = 0;       // slots that were freed only by their lifetime
  std::uint64_t most_slots = 0;    // the most slots in use at a time at one switch
  std::uint64_t at_servers = 0;    // gradient packets that reached servers
};

// Is told which pieces of flows have arrived (TransportFactory::pieces_of): over DLCP in any order,
// over TCP in their order.
class FlowWatcher {
 public:
  FlowWatcher() = default;
  FlowWatcher(const FlowWatcher&) = delete;
  FlowWatcher& operator=(const FlowWatcher&) = delete;
  virtual ~FlowWatcher() = default;
  virtual void on_arrived(std::uint64_t cookie, exec::Run pieces) = 0;
};

struct FlowSpec {
  Rank source;
  Rank target;
  std::uint64_t bytes = 0;
  const TransportFactory* transport = nullptr;
  // Start with the congestion window that the last warm flow of this transport between the two
  // hosts had at its end, and leave a window for the next.
  bool warm = false;
  std::uint64_t tag = 0;  // for the workload's own use
  // When the message was handed over, if that was before the flow starts; completion counts from
  // then.
  std::optional<Time> asked = {};
  // Which of the equal-cost shortest paths the flow and its acknowledgements take: a label as in
  // switch/queueing/route.h, over next hops in the order of the topology. -1: as `balancing` says.
  std::int32_t path = -1;
  // DLCP: the queue of its data, 1 (most urgent) to 7; other transports choose their queues
  // themselves.
  std::uint8_t priority = 1;
  // DLCP: the flow carries sums, so the loss bound of pulls applies.
  bool pull = false;
  // Aggregation: the flow is a tensor of aggregation number `aggregation`. `target` is a worker,
  // and `worker` its number in the job; `source` is where sums come from, a server or (SwitchML)
  // another worker. Every worker of a job starts the same tensors in the same order.
  std::int32_t aggregation = -1;
  std::int32_t worker = -1;
  // Not null: the flow is sent piece by piece. None of it leaves before offer() named it, and the
  // watcher, which must outlive the flow, is told what arrives, with this cookie. Over TCP such
  // flows share one stream for each pair of hosts and tag, which keeps its window; of the flows
  // that have something to send, the one of the lowest urgency goes first, then the one of the
  // lowest order. Requires a transport that has pieces.
  FlowWatcher* watcher = nullptr;
  std::uint64_t cookie = 0;
  std::int64_t urgency = 0;
  std::uint64_t order = 0;
};

struct FlowResult {
  FlowId id;
  FlowSpec spec;
  Time asked;  // when the message was handed over: `start`, or earlier if it waited for its turn
  Time start;  // when the flow began
  Time end;    // when the last byte that it needs reached the receiver
  Duration oracle;  // the time on an empty network: no real flow is faster
  SenderCounters counters;
  // The share of the flow that had arrived at its end: below 1 only where the transport tolerates
  // loss.
  double arrived = 1;
  [[nodiscard]] Duration completion_time() const { return end - asked; }
};

// A flow that has not ended.
struct FlowProgress {
  FlowSpec spec;
  Time start;
  std::uint64_t received = 0;  // payload bytes
};

struct NetworkCounters {
  std::uint64_t events = 0;
  std::uint64_t packet_hops = 0;   // packets that crossed a link
  std::uint64_t packets_sent = 0;  // data and acknowledgements
  std::uint64_t data_packets_sent = 0;
  std::uint64_t packets_delivered = 0;
  std::uint64_t packets_absorbed = 0;  // by switches that aggregate
  std::uint64_t packets_copied = 0;    // copies that switches made of sums for several workers
  std::uint64_t drops_full = 0;        // no buffer
  std::uint64_t drops_selective = 0;   // DLCP
  std::uint64_t drops_fault = 0;       // random loss, a link that is down, a switch that restarts
  std::uint64_t marks = 0;
  // Timers of senders that sent again: of TCP's data, and of DLCP's control messages.
  std::uint64_t timeouts = 0;
  std::uint64_t bytes_sent = 0;         // wire bytes that left hosts
  std::uint64_t bytes_delivered = 0;    // wire bytes that reached hosts
  std::uint64_t bytes_dropped = 0;      // wire bytes lost for any reason
  std::uint64_t bytes_absorbed = 0;     // of packets_absorbed
  std::uint64_t bytes_copied = 0;       // of packets_copied
  std::uint64_t peak_packets = 0;       // the most alive at once: the pool's size
  std::uint64_t peak_host_backlog = 0;  // the most bytes that waited at one host's port
};

class Network {
 public:
  // The topology must outlive the network.
  Network(const topology::Topology& topology, const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] Time now() const;
  [[nodiscard]] const topology::Topology& topology() const;
  // Sets up a job whose tensors are flows with `aggregation` set to the number returned. The
  // transport must outlive the network. Fails if hosts cannot take part or switches have no memory
  // left.
  Result<std::int32_t> add_aggregation(const AggregationSpec& spec);
  [[nodiscard]] AggregationCounters aggregation_counters(std::int32_t aggregation) const;
  // Why jobs with aggregation failed: one message for each end that gave up. Their flows do not
  // end.
  [[nodiscard]] const std::vector<std::string>& aggregation_failures() const;

  // Starts a flow now. It is a bug if source and target are the same or the flow has 0 bytes.
  FlowId start_flow(const FlowSpec& spec);
  // These pieces of a flow with a watcher may leave from now on; over TCP they follow those that
  // were offered before. Does nothing if the flow has ended, as one over DLCP may before all is
  // offered.
  void offer(FlowId flow, exec::Run pieces);
  // Calls `action` at that time; calls for the same time happen in the order they were made.
  void call_at(Time when, std::function<void()> action);
  // `callback` is called for every flow, when it ends.
  void on_flow_done(std::function<void(const FlowResult&)> callback);

  // Runs until nothing is left to do or `until` has come. Returns true if nothing is left.
  bool run(Time until);

  [[nodiscard]] const NetworkCounters& counters() const;
  // Wire bytes (headers, no framing) that each arc has carried.
  [[nodiscard]] const std::vector<std::uint64_t>& arc_bytes() const;
  // Bytes waiting now at the port that feeds the arc.
  [[nodiscard]] std::uint64_t queued_bytes(topology::ArcId arc) const;
  // Returns the most bytes that waited there at once since the last call.
  std::uint64_t take_queue_peak(topology::ArcId arc);
  // Packets lost at the port that feeds the arc, or on the arc.
  [[nodiscard]] std::uint64_t drops_at(topology::ArcId arc) const;
  // How many flows were started; their ids are 0, 1, ….
  [[nodiscard]] std::size_t flows_started() const;
  // Empty once the flow has ended.
  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId flow) const;
  // Flows that have started and not ended.
  [[nodiscard]] std::size_t active_flows() const;

  // Faults. Each takes effect at once.
  void set_loss(topology::ArcId arc, double probability);
  // Gilbert-Elliott loss: in the bad state every packet is lost. Mean lengths of states in packets.
  void set_bursty_loss(topology::ArcId arc, double good_packets, double bad_packets);
  // When a link goes down, the packets on the wire and in its ports are lost, and routing avoids
  // the link where it can, at once and everywhere.
  void set_link_up(topology::LinkId link, bool up);
  // Changes the rate from the next packet on; factor 1 is the topology's rate.
  void set_rate_factor(topology::LinkId link, double factor);
  // A paused host sends nothing; its packets wait.
  void set_host_paused(Rank host, bool paused);
  // Everything that waits in the switch is lost, but not a packet being transmitted.
  void restart_switch(topology::NodeId node);

  // What the always-on checkers found wrong; empty if all is well. Call it at the end of a run.
  // Checked: every packet sent was delivered, summed, dropped (counted) or is still inside; every
  // finished flow was at least as slow as its oracle and, over DLCP, ended within its loss bound;
  // no buffer was over its limit; no event lay in the past; when nothing is left to do, no end of
  // DLCP keeps state; every sum that reached a worker has each contribution once, and no switch
  // keeps an aggregator for ever.
  [[nodiscard]] std::vector<std::string> violations() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thalweg::sim
