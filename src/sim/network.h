// The simulated network as workloads see it: start flows, be told when they are done, run time on.
//
// Everything below (hosts, NICs, switches, links, transports) is driven by one event queue in one
// thread. Same topology, options, seed and calls: same result, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "sim/transport.h"
#include "topology/routing.h"
#include "topology/topology.h"

namespace thalweg {

enum class LoadBalancing : std::uint8_t {
  kFlowHash,   // ECMP: a flow keeps one path, chosen by a hash salted per switch
  kPerPacket,  // every packet takes the next of the equal paths by random choice
  kLabel,      // source routing: a flow's sender deals its packets over all paths in turn
};

// What the egress ports of switches do. One for the whole network.
struct QueueOptions {
  enum class Discipline : std::uint8_t {
    kFifo,            // one queue
    kStrictPriority,  // 8 queues, 0 first
    kPFabric,         // smallest rank_in_queue first; the largest is dropped when full
  };
  Discipline discipline = Discipline::kFifo;
  // Bytes that may wait at a port, over all its queues; 0: what the topology says of the link, and
  // no limit where it says nothing. A packet being transmitted does not count.
  Bytes port_buffer;
  // Bytes that may wait in a switch, over all its ports, beside the limit of each; 0: no limit.
  Bytes shared_buffer;
  // Mark capable packets on arrival when the port (kFifo, or strict priority with per_port_marking)
  // or else the queue holds more than this; 0: never.
  Bytes mark_above;
  bool per_port_marking = true;
  // DLCP: above queue q's threshold T·(1 + (q−1)·step) packets that are not ECN-capable are dropped
  // and capable ones marked; queue 0 carries control and is exempt. 0: off.
  Bytes selective_threshold;
  double selective_step = 0;
  // The same, one by one of the data queues, instead of the sequence; empty: as that says.
  std::vector<Bytes> selective_thresholds;
  // A packet that finds more than this waiting in its data queue is dropped; empty: no limits.
  std::vector<Bytes> queue_limits;
  // Bytes of a port's buffer that only queue 0 may use, so that data does not crowd out control.
  Bytes control_reserve;
};

// Which switches sum what passes through them (sim/atp), and with how much memory.
struct AggregationOptions {
  std::uint32_t slots = 0;      // of each switch: packets that it can sum at a time; 0: none does
  std::uint32_t elements = 64;  // most elements of a packet that it sums
  std::vector<NodeId> switches;
  // As in switch/aggregate.h.
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
  // Bytes that wait at a host's port before its senders are asked no more, as Linux' small queues
  // do: what they have to send then waits with them, and goes a packet at a time in turn.
  // Acknowledgements always go. 0: no limit, senders hand over all that their windows allow.
  // pFabric's hosts, which order packets by rank, have no limit.
  Bytes host_queue;
  std::uint64_t seed = 1;
};

// A job whose tensors are summed in switches: its hosts, and how.
struct AggregationSpec {
  const TransportFactory* transport = nullptr;  // atp or switchml
  std::vector<Rank> workers;
  std::vector<Rank> servers;     // of SwitchML: none, the switch is
  std::uint32_t slot_limit = 0;  // most slots of a switch that it takes; 0: no limit
};

// What became of a job's packets.
struct AggregationCounters {
  std::uint64_t sent = 0;  // by workers, retransmissions included
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t marks = 0;         // sums that told of congestion, over all workers
  std::uint64_t aggregated = 0;    // packets that switches added to a sum
  std::uint64_t completed = 0;     // sums that left a switch complete
  std::uint64_t collisions = 0;    // packets that found no slot
  std::uint64_t forwarded = 0;     // packets that switches passed on because they had to
  std::uint64_t partial_sums = 0;  // that a retransmission took out of a switch
  std::uint64_t expired = 0;       // slots that only their lifetime freed
  std::uint64_t most_slots = 0;    // at a time, at one switch
  std::uint64_t at_servers = 0;    // gradient packets that reached servers
};

struct FlowSpec {
  Rank source;
  Rank target;
  std::uint64_t bytes = 0;
  const TransportFactory* transport = nullptr;
  // Start with the congestion window that the last warm flow of this transport between the two
  // hosts had at its end, and leave one for the next.
  bool warm = false;
  std::uint64_t tag = 0;  // the workload's own
  // Which of the equal-cost shortest paths the flow and its acknowledgements take: a label as in
  // switch/route.h, over next hops in the order of the topology. -1: as `balancing` says.
  std::int32_t path = -1;
  // DLCP: the queue of its data, 1 the most urgent and 7 the last; other transports choose theirs.
  std::uint8_t priority = 1;
  // DLCP: what is sent are sums, and the bound of pulls applies.
  bool pull = false;
  // Aggregation: a tensor of worker `target`, of that number in its job; `source` is where sums
  // come from, a server or (SwitchML) another worker. Every worker of a job starts the same
  // tensors in the same order.
  std::int32_t aggregation = -1;
  std::int32_t worker = -1;
};

struct FlowResult {
  FlowId id;
  FlowSpec spec;
  Time start;
  Time end;         // when the last byte that it needs reached the receiver
  Duration oracle;  // on an empty network: no real flow is faster
  SenderCounters counters;
  // Part of it that had arrived at the end: below 1 only where the transport tolerates loss.
  double arrived = 1;
  [[nodiscard]] Duration completion_time() const { return end - start; }
};

// Of a flow that has not ended.
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
  std::uint64_t packets_copied = 0;    // made in switches: sums for several workers
  std::uint64_t drops_full = 0;        // no buffer
  std::uint64_t drops_selective = 0;   // DLCP
  std::uint64_t drops_fault = 0;       // random loss, a link that is down, a switch that restarts
  std::uint64_t marks = 0;
  std::uint64_t bytes_sent = 0;         // wire bytes that left hosts
  std::uint64_t bytes_delivered = 0;    // wire bytes that reached hosts
  std::uint64_t bytes_dropped = 0;      // wire bytes lost, for whatever reason
  std::uint64_t bytes_absorbed = 0;     // of packets_absorbed
  std::uint64_t bytes_copied = 0;       // of packets_copied
  std::uint64_t peak_packets = 0;       // alive at once: the pool's size
  std::uint64_t peak_host_backlog = 0;  // most bytes that waited at one host's port
};

class Network {
 public:
  // The topology must outlive the network.
  Network(const Topology& topology, const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] Time now() const;
  [[nodiscard]] const Topology& topology() const;
  // Sets up a job whose tensors are flows with `aggregation` set to the number returned. The
  // transport must outlive the network. Errors: hosts that cannot take part, no memory left.
  Result<std::int32_t> add_aggregation(const AggregationSpec& spec);
  [[nodiscard]] AggregationCounters aggregation_counters(std::int32_t aggregation) const;
  // Why jobs with aggregation failed: a text for each end that gave up. Their flows do not end.
  [[nodiscard]] const std::vector<std::string>& aggregation_failures() const;

  // Starts a flow now. A flow to oneself or of 0 bytes is a bug.
  FlowId start_flow(const FlowSpec& spec);
  // Calls `action` at that time, in order of time and, at equal times, of the calls.
  void call_at(Time when, std::function<void()> action);
  // Called for every flow that ends, at its end.
  void on_flow_done(std::function<void(const FlowResult&)> callback);

  // Runs until nothing is left to do or `until` has come. True if nothing is left.
  bool run(Time until);

  [[nodiscard]] const NetworkCounters& counters() const;
  // Wire bytes (headers, no framing) that each arc has carried.
  [[nodiscard]] const std::vector<std::uint64_t>& arc_bytes() const;
  // Bytes waiting now at the port that feeds the arc.
  [[nodiscard]] std::uint64_t queued_bytes(ArcId arc) const;
  // The most bytes that waited there at once since the last call.
  std::uint64_t take_queue_peak(ArcId arc);
  // Packets lost at the port that feeds the arc, or on the arc.
  [[nodiscard]] std::uint64_t drops_at(ArcId arc) const;
  // All flows so far, with the ids 0, 1, ….
  [[nodiscard]] std::size_t flows_started() const;
  // Empty once the flow has ended.
  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId flow) const;
  // Flows that have started and not ended.
  [[nodiscard]] std::size_t active_flows() const;

  // Faults. Each takes effect at once.
  void set_loss(ArcId arc, double probability);
  // Gilbert-Elliott: in the bad state every packet is lost; mean lengths in packets.
  void set_bursty_loss(ArcId arc, double good_packets, double bad_packets);
  // Down: what is on the wire and in the port is lost, and routing avoids the link where it can,
  // at once and everywhere.
  void set_link_up(LinkId link, bool up);
  // Slower or faster from the next packet on; 1 is the topology's rate.
  void set_rate_factor(LinkId link, double factor);
  // A paused host sends nothing; what it would send waits.
  void set_host_paused(Rank host, bool paused);
  // Everything that waits in the switch is lost. A packet being transmitted is not.
  void restart_switch(NodeId node);

  // What the always-on checkers found wrong; empty if all is well. Called at the end of a run:
  // every packet sent was delivered, summed, dropped (counted) or is still inside; every finished
  // flow was at least as slow as its oracle and, over DLCP, ended within its loss bound; no buffer
  // was over its limit; no event lay in the past; when nothing is left to do, no end of DLCP keeps
  // state; every sum that reached a worker has each contribution once, and no switch keeps an
  // aggregator for ever.
  [[nodiscard]] std::vector<std::string> violations() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thalweg
