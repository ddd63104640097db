// The hosts' side of aggregation: workers and servers of proto/atp (and workers of SwitchML), and
// the loop that drives them over the fabric.
//
// Life of a tensor: start_flow() at a worker → its packets are taken one at a time, when its window
// and the host's port let it (send_in_turn) → switches and server sum them → on_sum() at the
// worker, packet by packet → the last one is the flow's end, told to `done`.
//
// Elements are one number a packet (sim/atp/packet_header.h); every sum that a worker gets is
// compared with what it must be.
//
// Invariants:
// 1. An end has at most one valid timer event, that of timer_ps; the others are void and counted.
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
#include "proto/atp/switchml_worker.h"
#include "proto/atp/worker.h"
#include "sim/atp/aggregation_switches.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/host_lines.h"
#include "sim/network.h"
#include "sim/oracle.h"

namespace thalweg {

class AggregationHosts {
 public:
  // A flow has ended: its result, less the oracle, and its shape.
  using Done = std::function<void(FlowResult& result, const FlowShape& shape)>;

  // All but the options must outlive this.
  AggregationHosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
                   AggregationSwitches& switches, NetworkCounters& counters, Done done);

  // See network.h.
  Result<std::int32_t> add(const AggregationSpec& spec);
  void start_flow(FlowId id, const FlowSpec& spec);
  // Takes a packet for the stage that has reached its host.
  void on_packet(std::uint32_t place);
  // A kAggregationTimer event.
  void on_timer(const Event& event);
  // A kAggregationDrained event: the host's port may have room for more.
  void on_drained(Rank host);
  // The host was paused and goes on.
  void resume(Rank host) { send_in_turn(host); }

  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  [[nodiscard]] std::uint64_t void_timers() const { return void_timers_; }
  [[nodiscard]] AggregationCounters counters(std::int32_t job) const;
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  // Appends what is wrong.
  void check(std::vector<std::string>& violations) const;

 private:
  static constexpr std::int64_t kNoTimer = -1;

  struct Flow {
    FlowId id;
    FlowSpec spec;
    Time start;
    std::uint64_t first = 0;  // sequence
    std::uint64_t end = 0;    // one past its last
    std::uint64_t placed = 0;
  };
  // A worker or a server of a job; exactly one of the three is there.
  struct End {
    std::unique_ptr<AtpWorker> worker;
    std::unique_ptr<SwitchmlWorker> switchml;
    std::unique_ptr<AtpServer> server;
    std::size_t job = 0;
    std::size_t index = 0;  // among the job's workers, or servers
    Rank host;
    std::uint32_t path = 0;  // hash of its packets
    std::int64_t timer_ps = kNoTimer;
    std::uint16_t timer_stamp = 0;
    bool in_turn = false;
    bool failed = false;
    std::uint64_t next_sequence = 0;    // of the next tensor
    std::deque<Flow> flows;             // of a worker, in order of their sequences
    std::vector<std::uint32_t> values;  // of a server's slots
    std::uint64_t sent = 0;             // packets of a worker
    std::uint64_t gradients = 0;        // packets that reached a server
  };
  struct Job {
    AggregationSpec spec;
    const AggregationParameters* parameters = nullptr;
    AggregationGroups groups;
    std::vector<std::uint32_t> workers;  // ends
    std::vector<std::uint32_t> servers;
  };

  std::uint32_t make_end(std::size_t job, std::size_t index, Rank host);
  void make_worker(Job& job, std::size_t number, std::size_t index);
  void make_server(Job& job, std::size_t number, std::size_t index);

  // Of a worker: sends what it may, sets its timer and tells of what has ended.
  void drive_worker(std::uint32_t index);
  void drive_server(std::uint32_t index);
  void send_in_turn(Rank host);
  // False: the worker has nothing to send now.
  bool send_one(End& end);
  void send_sum(End& end, const AtpServerTransmit& transmit);
  void send_from(const End& end, const AtpHeader& header, Rank target, PacketKind kind,
                 std::uint32_t value);
  void set_timer(std::uint32_t index);
  [[nodiscard]] std::optional<Time> next_timeout(const End& end) const;
  // It may have something to send.
  [[nodiscard]] static bool ready(const End& end) { return end.switchml || end.worker->ready(); }

  void on_sum(std::uint32_t index, const AtpHeader& header, std::uint32_t value);
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
  std::uint64_t host_queue_;  // of the network; 0: as the transport says
  std::vector<Job> jobs_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unordered_map<FlowId, std::uint32_t> flow_index_;  // the worker of a flow that has not ended
  HostLines lines_;                                       // workers that have packets ready
  std::uint64_t void_timers_ = 0;
  std::uint64_t wrong_sums_ = 0;
  std::string first_wrong_;
  std::vector<std::string> failures_;
};

}  // namespace thalweg
