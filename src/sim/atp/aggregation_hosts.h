// The hosts' side of aggregation: the workers and servers of proto/atp (and the workers of
// SwitchML), and the loop that drives them over the fabric.
//
// Life of a tensor: start_flow() at a worker → send_in_turn() takes its packets one at a time, when
// the worker's window and the host's port have room → switches and the server sum them → on_sum()
// at the worker, once per packet → the last packet ends the flow, which is reported to `done`.
//
// One number stands for all elements of a packet (sim/atp/packet_header.h); every sum that a worker
// receives is compared with the sum it must be.
//
// Invariants:
// 1. An end has at most one valid timer event, the one at timer_ps; its other timer events are void
//    and counted in void_timers_.
// 2. A worker is in its host's line iff in_turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/atp/server.h"
#include "proto/atp/worker.h"
#include "sim/atp/aggregation_switches.h"
#include "sim/baselines/switchml_worker.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/network.h"
#include "sim/hosts/host_lines.h"
#include "sim/observe/oracle.h"

namespace thalweg::sim {

class AggregationHosts {
 public:
  // Called when a flow has ended, with its result (the oracle is not yet filled in) and its shape.
  using Done = std::function<void(FlowResult& result, const FlowShape& shape)>;

  // All arguments but the options must outlive this object.
  AggregationHosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
                   AggregationSwitches& switches, NetworkCounters& counters, Done done);

  // See network.h.
  Result<std::int32_t> add(const AggregationSpec& spec);
  void start_flow(FlowId id, const FlowSpec& spec);
  // Takes an aggregation packet (for_stage() in sim/core/packet.h) that has reached its host.
  void on_packet(std::uint32_t place);
  // Handles a kAggregationTimer event.
  void on_timer(const Event& event);
  // Handles a kAggregationDrained event: the host's port may have room for more.
  void on_drained(Rank host);
  // Called when a paused host resumes.
  void resume(Rank host) { send_in_turn(host); }

  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  [[nodiscard]] std::uint64_t void_timers() const { return void_timers_; }
  [[nodiscard]] AggregationCounters counters(std::int32_t job) const;
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  // Appends a message for each invariant that does not hold.
  void check(std::vector<std::string>& violations) const;

 private:
  static constexpr std::int64_t kNoTimer = -1;

  struct Flow {
    FlowId id;
    FlowSpec spec;
    Time start;
    std::uint64_t first = 0;  // its first sequence
    std::uint64_t end = 0;    // one past its last sequence
    std::uint64_t placed = 0;
  };
  // A worker or a server of a job; exactly one of the three pointers is set.
  struct End {
    std::unique_ptr<proto::AtpWorker> worker;
    std::unique_ptr<SwitchmlWorker> switchml;
    std::unique_ptr<proto::AtpServer> server;
    std::size_t job = 0;
    std::size_t index = 0;  // among the job's workers, or servers
    Rank host;
    std::uint32_t path = 0;  // path hash of its packets
    std::int64_t timer_ps = kNoTimer;
    std::uint16_t timer_stamp = 0;
    bool in_turn = false;
    bool failed = false;
    std::uint64_t next_sequence = 0;  // the first sequence of its next tensor
    std::deque<Flow> flows;  // workers only: flows that have not ended, in order of their sequences
    std::vector<std::uint32_t> values;  // servers only: the value of each slot
    std::uint64_t sent = 0;             // packets that the worker sent
    std::uint64_t gradients = 0;        // packets that reached the server
  };
  struct Job {
    AggregationSpec spec;
    const AggregationParameters* parameters = nullptr;
    topology::AggregationGroups groups;
    std::vector<std::uint32_t> workers;  // indices into ends_
    std::vector<std::uint32_t> servers;
    // By server: the worker of its host, whose gradients it adds itself; empty if none does.
    std::vector<std::optional<proto::AtpSeat>> seats;
  };

  std::uint32_t make_end(std::size_t job, std::size_t index, Rank host);
  void make_worker(Job& job, std::size_t number, std::size_t index);
  void make_server(Job& job, std::size_t number, std::size_t index);

  // Sends what the worker may send, sets its timer and reports the flows that have ended.
  void drive_worker(std::uint32_t index);
  void drive_server(std::uint32_t index);
  void send_in_turn(Rank host);
  // Returns false if the worker has nothing to send now.
  bool send_one(End& end);
  void send_sum(End& end, const proto::AtpServerTransmit& transmit);
  // A gradient has reached the server.
  void add(End& end, const wire::AtpHeader& header, std::uint32_t value);
  // The job's worker at the server's host, if the server adds its gradients itself.
  [[nodiscard]] std::optional<std::uint32_t> own_worker(const End& server) const;
  void send_from(const End& end, const wire::AtpHeader& header, Rank target, PacketKind kind,
                 std::uint32_t value);
  void set_timer(std::uint32_t index);
  [[nodiscard]] std::optional<Time> next_timeout(const End& end) const;
  // Whether the worker may have something to send.
  [[nodiscard]] static bool ready(const End& end) { return end.switchml || end.worker->ready(); }

  void on_sum(std::uint32_t index, const wire::AtpHeader& header, std::uint32_t value);
  void placed(End& end, std::uint64_t sequence, std::uint32_t value);
  void end_flows(End& end);
  void fail(End& end, const std::string& why);
  [[nodiscard]] std::uint64_t limit_of(const End& end) const;
  [[nodiscard]] std::uint32_t sum_of(std::size_t job, std::uint64_t sequence) const;

  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  AggregationSwitches& switches_;
  NetworkCounters& counters_;
  Done done_;
  Prng prng_;
  std::uint32_t framing_bytes_;
  std::uint64_t host_queue_;  // bytes, as the network's options say; 0: as the transport says
  std::vector<Job> jobs_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unordered_map<FlowId, std::uint32_t> flow_index_;  // the worker of a flow not yet ended
  HostLines lines_;                                       // workers with packets ready
  std::uint64_t void_timers_ = 0;
  std::uint64_t wrong_sums_ = 0;
  std::string first_wrong_;
  std::vector<std::string> failures_;
};

}  // namespace thalweg::sim
