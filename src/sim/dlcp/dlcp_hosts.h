// The hosts' side of DLCP: one endpoint of proto/dlcp for every pair of hosts and end, and the
// loop that drives them over the fabric.
//
// Life of a flow: start_flow() starts a transfer at both ends → the sender's data is taken one
// packet at a time, when its pacer and the host's port let it (send_in_turn) → on_data() at the
// receiver → its success is the flow's end, told to `done` → the sender's end frees the record.
// Control messages travel in the top queue over a ControlSender and a ControlReceiver.
//
// Every host has a line (sim/host_lines.h) of the endpoints that have data ready.
//
// Invariants:
// 1. A side has at most one valid timer event, that of timer_ps; the others are void and counted.
// 2. A side is in its host's line iff in_turn.
// 3. A flow's record lives from start_flow() until both ends have said how the transfer ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/dlcp/endpoint.h"
#include "sim/dlcp/control_channel.h"
#include "sim/dlcp/dlcp_transport.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/host_lines.h"
#include "sim/network.h"
#include "sim/oracle.h"

namespace thalweg {

class DlcpHosts {
 public:
  // A flow has ended: its result, less the oracle, and the shape of the least that had to arrive.
  using Done = std::function<void(FlowResult& result, const FlowShape& least)>;

  // All but the options must outlive this.
  DlcpHosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
            NetworkCounters& counters, Done done);

  // Requires a transport with parameters of DLCP.
  void start_flow(FlowId id, const FlowSpec& spec);
  // Takes a packet of one of DLCP's kinds that has reached its host.
  void on_packet(std::uint32_t place);
  // A kDlcpTimer event.
  void on_timer(const Event& event);
  // A kDlcpDrained event: the host's port may have room for more.
  void on_drained(Rank host);
  // The host was paused and goes on.
  void resume(Rank host) { send_in_turn(host); }

  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  [[nodiscard]] std::uint64_t void_timers() const { return void_timers_; }
  // Appends what is wrong. `idle`: nothing will happen any more, so nothing may be kept.
  void check(bool idle, std::vector<std::string>& violations) const;

 private:
  static constexpr std::int64_t kNoTimer = -1;

  // One end of all that two hosts send each other over one transport.
  struct Side {
    Side(const DlcpOptions& options, const DlcpParameters& of, Rank at, Rank to)
        : endpoint(options), parameters(of), host(at), peer(to), out(of.control_rto) {}

    DlcpEndpoint endpoint;
    const DlcpParameters& parameters;
    Rank host;
    Rank peer;
    std::uint32_t other = 0;  // the side at the peer
    ControlSender out;
    ControlReceiver in;
    std::int64_t timer_ps = kNoTimer;
    std::uint16_t timer_stamp = 0;
    bool in_turn = false;
    // Where senders name paths by labels: the label of the first path, how many packets were dealt,
    // and which routes the paths are those of.
    std::uint32_t first_label = 0;
    std::uint32_t dealt = 0;
    std::uint32_t routes_version = 0;
    std::uint32_t control_path = 0;  // hash, or a label that holds until a message is lost
  };
  struct Flow {
    FlowId id;
    FlowSpec spec;
    Time start;
    LossBound bound;
    std::int32_t segments = 0;
    std::uint32_t segment_bytes = 0;
    std::uint32_t last_bytes = 0;
    std::int32_t placed = 0;  // segments that arrived before the end, counted here
    std::uint32_t path = 0;
    bool received = false;  // the receiver's end is over
    bool sent = false;      // the sender's
    SenderCounters counters;
  };
  struct PairKey {
    const DlcpParameters* parameters = nullptr;
    Rank host;
    Rank peer;
    bool operator==(const PairKey&) const = default;
  };
  struct PairHash {
    std::size_t operator()(const PairKey& key) const;
  };

  std::uint32_t side_of(const DlcpParameters& parameters, Rank host, Rank peer);
  std::uint32_t make_side(const DlcpParameters& parameters, Rank host, Rank peer);
  std::uint32_t make_flow(FlowId id, const FlowSpec& spec);
  [[nodiscard]] TransferSpec transfer_of(std::uint32_t flow) const;
  [[nodiscard]] TagSource tags_of(const FlowSpec& spec, std::uint64_t seed) const;

  void on_data(std::uint32_t place);
  void on_control(std::uint32_t place);
  void on_ack(std::uint32_t place);

  // To be called after anything happened at the side: sends what it has to send, sets its timer
  // and tells of flows that ended.
  void drive(std::uint32_t index);
  void send_in_turn(Rank host);
  void look_at_routes(Side& side);
  [[nodiscard]] static std::uint32_t next_label(Side& side, std::uint32_t path);
  void send_data(Side& side, const DataBatch& batch);
  void send_control(Side& side);
  void send_message(Side& side, std::uint64_t number);
  void set_timer(std::uint32_t index);
  void take_events(Side& side);
  void end_flow(std::uint32_t flow, const TransferOutcome& outcome);
  void forget_if_over(std::uint32_t flow);
  [[nodiscard]] std::uint64_t limit_of(const Side& side) const;

  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  NetworkCounters& counters_;
  Done done_;
  Prng prng_;
  std::uint32_t framing_bytes_;
  std::uint64_t host_queue_;  // of the network; 0: as the transport says
  bool label_paths_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::unordered_map<PairKey, std::uint32_t, PairHash> side_index_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_flows_;
  std::unordered_map<FlowId, std::uint32_t> flow_index_;  // of flows that have not ended
  HostLines lines_;                                       // sides that have data ready
  std::uint64_t void_timers_ = 0;
  std::uint64_t below_bound_ = 0;
  std::string first_below_;
};

}  // namespace thalweg
