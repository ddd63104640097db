// The hosts: the flows that start and end there, and the drivers of their transports.
//
// A flow ends when its last byte reaches the receiver. A notice tells the sender's end, which
// reports the flow; it takes as long as the delays of the links. The sender lives on until all is
// acknowledged, since the last acknowledgement may be lost; then another notice ends the receiver.
// Packets for an end that is gone are received and dropped.
//
// The two ends of a flow share no memory, because they may be in different shards
// (sim/core/post.h).
//
// Timers are lazy: a flow has at most one valid timer event. A sender that moves its timeout back
// (as it does with every acknowledgement) is not rescheduled; when the event comes too early, it is
// set again for the sender's timeout at that time.
//
// Flows of DLCP and of aggregation are only numbered and reported here; DlcpHosts and
// AggregationHosts do the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/atp/aggregation_hosts.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/network.h"
#include "sim/core/post.h"
#include "sim/core/shard_map.h"
#include "sim/dlcp/dlcp_hosts.h"
#include "sim/hosts/host_lines.h"
#include "sim/observe/oracle.h"
#include "switch/queueing/admission.h"

namespace thalweg::sim {

class Hosts {
 public:
  // All arguments but the options must outlive the hosts.
  // The hosts are those of one shard.
  Hosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
        AggregationSwitches& switches, Oracle& oracle, NetworkCounters& counters,
        const ShardMap& shards, std::size_t shard, Post& post);

  // Requires a source in this shard; and a target too, unless the transport is TCP or similar.
  FlowId start_flow(const FlowSpec& spec, FlowHooks hooks);
  // Takes what the hosts of another shard sent.
  void receive(std::size_t from_shard, Letters& letters);
  // Handles a kFlowEnded event: the flow's sender learns that its receiver has all.
  void on_ended(const Event& event);
  // Handles a kFlowClosed event: the flow's receiver is no longer needed.
  void on_closed(const Event& event);
  // Takes a packet that has reached the host it is for.
  void on_packet(std::uint32_t packet);
  // Handles a kTimer event.
  void on_timer(const Event& event);
  // Handles a kDrained event: the host's port may have room for more.
  void on_drained(Rank host);
  [[nodiscard]] DlcpHosts& dlcp() { return dlcp_; }
  [[nodiscard]] AggregationHosts& aggregation() { return aggregation_; }
  void on_flow_done(std::function<void(const FlowResult&)> callback);

  [[nodiscard]] std::size_t active_flows() const { return active_; }
  [[nodiscard]] std::size_t flows_started() const { return flows_.size(); }
  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  // How many timer events in the queue are void.
  [[nodiscard]] std::uint64_t void_timers() const {
    return void_timers_ + dlcp_.void_timers() + aggregation_.void_timers();
  }
  // Appends a message for each invariant that does not hold. `idle`: no event is left.
  void check(bool idle, std::vector<std::string>& violations) const;

 private:
  static constexpr std::int64_t kNoTimer = -1;

  // The sender's end of a flow.
  struct Flow {
    explicit Flow(const FlowSpec& flow_spec) : spec(flow_spec) {}

    std::unique_ptr<Sender> sender;
    std::int64_t timer_ps = kNoTimer;  // time of the valid timer event
    std::uint32_t incoming = 0;        // its number at the receiver
    std::uint16_t timer_stamp = 0;
    bool reported = false;    // the sender has learnt that the receiver has all
    bool closed = false;      // all is acknowledged
    bool in_turn = false;     // in its host's line
    bool uniform = true;      // see FlowShape
    bool fixed_path = false;  // the paths are labels that every packet carries
    std::uint32_t largest = 0;
    std::uint32_t smallest = 0;
    std::uint32_t header_bytes = 0;
    std::uint32_t data_path = 0;  // a hash, or the next label
    std::uint64_t number = 0;     // among the flows of its source
    std::int64_t notice_ps = 0;   // how long a notice takes from one end to the other
    Time start;
    Time end;  // when the receiver had all, as its notice says
    FlowSpec spec;
    std::function<void()> finished;
  };
  // A flow of DLCP or of aggregation; both of its ends are in this shard.
  struct OtherFlow {
    FlowHooks hooks;
    std::uint64_t number = 0;
    FlowResult result;
    FlowShape shape;
  };
  // A connection that keeps its window from flow to flow.
  struct Connection {
    const TransportFactory* transport = nullptr;
    Rank source;
    Rank target;
    bool operator==(const Connection&) const = default;
  };
  struct ConnectionHash {
    std::size_t operator()(const Connection& c) const;
  };

  void start_tcp(std::size_t index, FlowId id, const FlowSpec& spec, FlowHooks hooks);
  void on_data(std::uint32_t place, IncomingFlow& flow);
  void on_ack(std::uint32_t place, Flow& flow);
  // Ends a flow at its receiver.
  void end_incoming(IncomingFlow& flow);
  // The sender has all acknowledged.
  void close(std::size_t index, Flow& flow);
  void expect_closed(std::size_t source_shard, const ClosedLetter& letter);
  void end_other(FlowResult& result, const FlowShape& shape, bool at_once);
  void report_other(std::size_t index);
  [[nodiscard]] std::size_t index_of(FlowId id) const { return id.index() >> flow_shift_; }
  [[nodiscard]] std::size_t shard_of(Rank host) const;
  // Sends what the sender has and its host's port takes, sets its timer, and deletes the flow when
  // the sender is done.
  void drive(FlowId id, Flow& flow);
  void send_in_turn(Rank host);
  // Sends as much as the flow's queue takes. Returns whether the queue is full.
  bool fill_socket(FlowId id, Flow& flow);
  void fill_sockets(Rank host);
  void send_segment(FlowId id, Flow& flow, const SegmentToSend& segment);
  static void note_size(Flow& flow, const SegmentToSend& segment);
  void set_timer(FlowId id, Flow& flow);
  // Checks the result against its oracle and calls the callbacks.
  void report(FlowResult& result, const FlowShape& shape);
  void keep_window(const Flow& flow);
  // The path that the flow's next packet takes; `path` is the flow's data_path or ack_path.
  [[nodiscard]] std::uint32_t path_of(bool fixed, std::uint32_t& path) const {
    return label_paths_ && !fixed ? path++ : path;
  }

  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  Oracle& oracle_;
  NetworkCounters& counters_;
  const ShardMap& shards_;
  const std::size_t shard_;
  const int flow_shift_;
  Post& post_;
  std::vector<Prng> path_prngs_;  // by host, so that hosts do not disturb each other
  std::uint32_t framing_bytes_;
  bool label_paths_;
  // Bytes at a host's port; kNoLimit: senders are asked for all they have.
  std::uint64_t port_limit_;
  std::uint64_t socket_limit_;  // bytes of one flow at a host's port; 0: no such limit
  HostLines lines_;             // flows that may have more to send than their port takes
  std::vector<std::unique_ptr<Flow>> flows_;           // that started here; null: done, or not TCP
  std::vector<std::uint64_t> flows_of_;                // by host: how many started there
  std::unordered_map<std::size_t, OtherFlow> others_;  // by the place in flows_
  // The receivers of flows, by the shard of their sources and then in the order in which they
  // started; null: closed.
  std::vector<std::vector<std::unique_ptr<IncomingFlow>>> incoming_;
  std::vector<std::uint32_t> next_incoming_;  // by the shard of the targets
  DlcpHosts dlcp_;
  AggregationHosts aggregation_;
  std::size_t active_ = 0;
  std::uint64_t void_timers_ = 0;
  std::unordered_map<Connection, double, ConnectionHash> windows_;
  // A list, because a callback may add another while it runs.
  std::list<std::function<void(const FlowResult&)>> callbacks_;
  std::uint64_t faster_than_oracle_ = 0;
  std::string first_faster_;
};

}  // namespace thalweg::sim
