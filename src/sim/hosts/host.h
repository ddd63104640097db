// The hosts: the flows that start and end there, and the drivers of their transports.
//
// A flow ends when its last byte reaches the receiver; its sender lives on until it learns that,
// since the last acknowledgement may be lost. Packets for a sender that is gone are received and
// dropped.
//
// Timers are lazy: a flow has at most one valid timer event. A sender that moves its timeout back
// (as it does with every acknowledgement) is not rescheduled; when the event comes too early, it is
// set again for the sender's timeout at that time.
//
// Flows with a watcher share streams: such a flow is a message (streams.h), and the stream has a
// number and a record here as flows have. Flows of DLCP and of aggregation are only numbered and
// reported here; DlcpHosts and AggregationHosts do the rest.
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
#include "sim/dlcp/dlcp_hosts.h"
#include "sim/hosts/host_lines.h"
#include "sim/hosts/streams.h"
#include "sim/observe/oracle.h"
#include "switch/queueing/admission.h"

namespace thalweg::sim {

class Hosts {
 public:
  // All arguments but the options must outlive the hosts.
  Hosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
        AggregationSwitches& switches, Oracle& oracle, NetworkCounters& counters);

  FlowId start_flow(const FlowSpec& spec);
  // As Network::offer().
  void offer(FlowId id, exec::Run pieces);
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

  struct Flow {
    explicit Flow(const FlowSpec& flow_spec) : receiver(flow_spec.bytes), spec(flow_spec) {}

    std::unique_ptr<Sender> sender;
    Receiver receiver;
    std::int64_t timer_ps = kNoTimer;  // time of the valid timer event
    std::uint16_t timer_stamp = 0;
    std::uint8_t ack_priority = 0;
    bool selective = false;  // the receiver acknowledges selectively
    bool ended = false;
    bool in_turn = false;     // in its host's line
    bool uniform = true;      // see FlowShape
    bool fixed_path = false;  // the paths are labels that every packet carries
    std::uint32_t largest = 0;
    std::uint32_t smallest = 0;
    std::uint32_t header_bytes = 0;
    std::uint32_t data_path = 0;  // a hash, or the next label
    std::uint32_t ack_path = 0;
    Time start;
    FlowSpec spec;
    // A stream has its sender here again, its number, and its sender's counters when its last
    // message ended. The spec is that of its first message.
    StreamSender* stream_sender = nullptr;
    std::uint32_t stream = 0;
    SenderCounters counted;
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

  void prepare(Flow& flow);
  void start_message(FlowId id, const FlowSpec& spec);
  void end_message(Flow& carrier, const Streams::Message& message);
  // Returns false if the flow has nothing to send now.
  bool poll(Flow& flow, SegmentToSend& segment);
  void on_data(std::uint32_t place, Flow& flow);
  void on_ack(std::uint32_t place, Flow& flow);
  // Adds to the acknowledgement at `place` what the receiver has beyond, in answer to this payload.
  void add_sack(std::uint32_t place, Flow& flow, std::uint64_t sequence, std::uint32_t payload);
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
  void end_flow(FlowId id, Flow& flow);
  // Checks the result against its oracle and calls the callbacks.
  void report(FlowResult& result, const FlowShape& shape);
  void keep_window(const Flow& flow);
  // The path that the flow's next packet takes; `path` is the flow's data_path or ack_path.
  [[nodiscard]] std::uint32_t path_of(const Flow& flow, std::uint32_t& path) const {
    return label_paths_ && !flow.fixed_path ? path++ : path;
  }

  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  Oracle& oracle_;
  NetworkCounters& counters_;
  Prng path_prng_;
  std::uint32_t framing_bytes_;
  bool label_paths_;
  // Bytes at a host's port; kNoLimit: senders are asked for all they have.
  std::uint64_t port_limit_;
  std::uint64_t socket_limit_;  // bytes of one flow at a host's port; 0: no such limit
  HostLines lines_;             // flows that may have more to send than their port takes
  std::vector<std::unique_ptr<Flow>> flows_;  // by id; null: done, or not TCP
  // By place: what a packet that is an acknowledgement of a selective flow says.
  std::vector<SackBlocks> sacks_;
  Streams streams_;
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
