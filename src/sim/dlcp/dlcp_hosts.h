// The hosts' side of DLCP: for every transport and pair of hosts one endpoint of proto/dlcp at each
// of the two hosts, and the loop that drives them over the fabric.
//
// Life of a flow: start_flow() starts a transfer at both ends → send_in_turn() takes the sender's
// data one packet at a time, when its pacer and the host's port allow it → on_data() at the
// receiver → the receiver's success ends the flow, which is reported to `done` → the record is
// freed when the sender's transfer has ended too. Control messages travel in the top queue, from a
// ControlSender to a ControlReceiver; a copy of each stop follows its data in the data's queue, as
// on sockets.
// Grants are packets of the top queue too, but nobody sends a lost one again: the sender asks.
//
// Every host has a line (sim/hosts/host_lines.h) of the endpoints that have data ready.
//
// Invariants:
// 1. A side has at most one valid timer event, the one at timer_ps; its other timer events are void
//    and counted in void_timers_.
// 2. A side is in its host's line iff in_turn.
// 3. A flow's record lives from start_flow() until both ends have reported how the transfer ended.
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
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/network.h"
#include "sim/dlcp/control_channel.h"
#include "sim/dlcp/dlcp_transport.h"
#include "sim/hosts/host_lines.h"
#include "sim/observe/oracle.h"

namespace thalweg::sim {

class DlcpHosts {
 public:
  // Called when a flow has ended, with its result (the oracle is not yet filled in) and the shape
  // of the least that had to arrive.
  using Done = std::function<void(FlowResult& result, const FlowShape& least)>;

  // All arguments but the options must outlive this object.
  DlcpHosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
            NetworkCounters& counters, Done done);

  // Requires a transport with DLCP parameters.
  void start_flow(FlowId id, const FlowSpec& spec);
  // These segments of a flow with a watcher may leave from now on. Does nothing if the flow has
  // ended: its receiver may have enough before all is offered.
  void offer(FlowId id, exec::Run segments);
  // Takes a packet of one of DLCP's kinds that has reached its host.
  void on_packet(std::uint32_t place);
  // Handles a kDlcpTimer event.
  void on_timer(const Event& event);
  // Handles a kDlcpDrained event: the host's port may have room for more.
  void on_drained(Rank host);
  // Called when a paused host resumes.
  void resume(Rank host);

  [[nodiscard]] std::optional<FlowProgress> progress_of(FlowId id) const;
  [[nodiscard]] std::uint64_t void_timers() const { return void_timers_; }
  // Appends a message for each invariant that does not hold. `idle`: no event is left, so no
  // endpoint may keep state.
  void check(bool idle, std::vector<std::string>& violations) const;

 private:
  static constexpr std::int64_t kNoTimer = -1;

  // One host's end of everything that two hosts send each other over one transport.
  struct Side {
    Side(const proto::DlcpOptions& options, proto::GrantScheduler* by, std::uint32_t index,
         const DlcpParameters& of, Rank at, Rank to)
        : endpoint(options, by, index),
          grants(by),
          parameters(of),
          host(at),
          peer(to),
          out(of.control_rto) {}

    proto::DlcpEndpoint endpoint;
    proto::GrantScheduler* grants;  // of the host, or null
    const DlcpParameters& parameters;
    Rank host;
    Rank peer;
    std::uint32_t other = 0;  // index of the side at the peer
    ControlSender out;
    ControlReceiver in;
    std::int64_t timer_ps = kNoTimer;
    std::uint16_t timer_stamp = 0;
    bool in_turn = false;
    // Used where senders name paths by labels: the label of the first path, how many packets were
    // dealt over the paths, and the version of the routes that the paths belong to.
    std::uint32_t first_label = 0;
    std::uint32_t dealt = 0;
    std::uint32_t routes_version = 0;
    std::uint32_t control_path = 0;     // a hash, or a label that is kept until a message is lost
    std::uint32_t data_path = 0;        // the path_hash of the last data packet
    bool data_labelled = false;         // the same packet's `labelled`
    std::uint8_t data_path_number = 0;  // the same packet's `path`
  };
  struct Flow {
    FlowId id;
    FlowSpec spec;
    Time start;
    proto::LossBound bound;
    proto::TransferHandle sending;
    std::int32_t segments = 0;
    std::uint32_t segment_bytes = 0;
    std::uint32_t last_bytes = 0;
    std::int32_t placed = 0;  // segments that arrived before the end, counted by the simulator
    std::uint32_t path = 0;
    bool received = false;  // the receiver's end is over
    bool sent = false;      // the sender's end is over
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
  // The scheduler that all sides of the host share; null where the transport gives no grants.
  proto::GrantScheduler* grants_of(const DlcpParameters& parameters, Rank host);
  std::uint32_t make_side(const DlcpParameters& parameters, Rank host, Rank peer);
  std::uint32_t make_flow(FlowId id, const FlowSpec& spec);
  [[nodiscard]] proto::TransferSpec transfer_of(std::uint32_t flow) const;
  [[nodiscard]] proto::TagSource tags_of(const FlowSpec& spec, std::uint64_t seed) const;

  void on_data(std::uint32_t place);
  void on_control(std::uint32_t place);
  void on_ack(std::uint32_t place);
  void on_stop_copy(std::uint32_t place);
  void on_grant(std::uint32_t place);

  // Must be called after anything happened at the side: sends what the side has to send, sets its
  // timer and reports the flows that ended.
  void drive(std::uint32_t index);
  // The side has data ready and is not in its host's line: sends, or joins the line.
  void start_turn(std::uint32_t index);
  void send_in_turn(Rank host);
  // The same where hosts have an order for all that they send.
  void send_in_order(Rank host);
  [[nodiscard]] bool goes_before(std::uint32_t a, std::uint32_t b) const;
  // Sends what is ready and the socket's queue takes. Returns whether more is ready.
  bool fill_socket(Side& side);
  void look_at_routes(Side& side);
  [[nodiscard]] static std::uint32_t next_label(Side& side, std::uint32_t path);
  void send_data(Side& side, const proto::DataBatch& batch);
  void send_control(Side& side);
  void send_message(Side& side, std::uint64_t number);
  void send_stop_copy(Side& side, const wire::StopMessage& stop);
  // Sends the grants that the host's scheduler has to give.
  void send_grants(proto::GrantScheduler& grants);
  // Fills in a packet of a control message, or of a copy of one, and sends it.
  void send_signal(Side& side, PacketKind kind, std::uint64_t sequence, std::size_t size,
                   std::uint8_t queue, std::uint32_t path);
  void set_timer(std::uint32_t index);
  void take_events(Side& side);
  void end_flow(std::uint32_t flow, const proto::TransferOutcome& outcome);
  void forget_if_over(std::uint32_t flow);
  [[nodiscard]] std::uint64_t limit_of(const Side& side) const;

  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  NetworkCounters& counters_;
  Done done_;
  Prng prng_;
  std::uint32_t framing_bytes_;
  std::uint64_t host_queue_;    // bytes, as the network's options say; 0: as the transport says
  std::uint64_t socket_limit_;  // bytes of one side at its host's port; 0: no such limit
  bool label_paths_;
  std::uint64_t seed_;
  // Above 0: some transport has an order (DlcpParameters::order), and so many bytes may wait at a
  // host's port. The order then holds for all that a host sends.
  std::uint64_t ahead_ = 0;
  // A scheduler for each transport and host; the peer in the key is the host itself.
  std::unordered_map<PairKey, std::unique_ptr<proto::GrantScheduler>, PairHash> schedulers_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::unordered_map<PairKey, std::uint32_t, PairHash> side_index_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_flows_;
  std::unordered_map<FlowId, std::uint32_t> flow_index_;  // flows that have not ended
  HostLines lines_;                                       // sides with data ready
  std::uint64_t void_timers_ = 0;
  std::uint64_t below_bound_ = 0;
  std::string first_below_;
};

}  // namespace thalweg::sim
