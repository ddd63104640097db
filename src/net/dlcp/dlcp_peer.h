// One peer: a DlcpEndpoint (recorded on request) and the sockets it uses. This class makes no
// protocol decision; it moves bytes and tells the time. With HostGrants its endpoint is one of
// several that share a scheduler of grants.
//
// The constructor, name(), payload(), connected(), data_vanishes() and counters_after_end() may be
// called from any thread; all other methods only from the loop's.
//
// Invariants:
// 1. Every transfer given to start() ends exactly once.
// 2. A tensor's memory is accessed only between start() and the end of its transfer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <thalweg/endpoint.h>

#include "net/auth/packet_guard.h"
#include "net/dlcp/control_stream.h"
#include "net/dlcp/host_grants.h"
#include "net/dlcp/test_faults.h"
#include "net/dlcp/transfer_state.h"
#include "net/io/event_loop.h"
#include "net/io/udp_socket.h"
#include "proto/dlcp/record/recorded_endpoint.h"

namespace thalweg::net {

class DlcpPeer final : public EventLoop::Handler, public std::enable_shared_from_this<DlcpPeer> {
 public:
  // The result of a handshake. All sockets are connected.
  struct Parts {
    Fd stream;
    std::vector<UdpSocket> udp;  // one for each path, the same at both ends; at least one
    std::string name;
    std::uint32_t payload = 0;
    std::unique_ptr<PacketGuard> guard = nullptr;  // null without a job key
  };

  // `grants`: of the endpoint; null: this end gives none.
  DlcpPeer(std::shared_ptr<EventLoop> loop, Parts parts, const EndpointOptions& options,
           LosePacket lose, const std::shared_ptr<HostGrants>& grants);

  // Records everything that happens from now on. Requires a peer that was not used yet.
  void record(proto::RecordSink sink) { dlcp_.record(std::move(sink)); }
  // Adds the sockets to the loop.
  void open();
  void start(const std::shared_ptr<Transfer::State>& transfer);
  // Lets the segments leave that were offered since the last call.
  void offer(Transfer::State& transfer);
  void cancel(const Transfer::State& transfer);
  // Fails the transfers in flight, here and at the peer, and refuses new ones. settled() holds as
  // soon as the peer has been told.
  void shut(const std::string& cause);
  // The connection ends as soon as settled() holds.
  void close_when_settled() { close_when_settled_ = true; }
  // Ends the connection: every transfer fails with this cause.
  void lose(const Error& cause);

  // Sends these grants of the scheduler.
  void send_grants(std::span<const proto::GrantScheduler::Grant> grants);
  // The place of what would leave next among all that the host sends; none if nothing may leave.
  [[nodiscard]] std::optional<proto::SendKey> next_key() const { return dlcp_.next_key(); }
  // The shortest round trip of a signal that the system measured; 0 if it knows none.
  [[nodiscard]] Duration round_trip() const;
  // This peer's name in grants.
  [[nodiscard]] std::uint32_t number() const { return number_; }

  // Sends what may be sent and ends the transfers that are over. Call it again at the returned
  // time, and whenever a socket is ready.
  std::optional<Time> turn();
  void on_ready(int fd, std::uint32_t events) override;

  [[nodiscard]] bool lost() const { return !connected_; }
  [[nodiscard]] bool settled() const {
    return lost() || (dlcp_.settled() && !stream_->blocked() && !stream_->behind());
  }
  [[nodiscard]] NetCounters counters() const;

  [[nodiscard]] const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t payload() const { return payload_; }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool data_vanishes() const { return data_vanishes_; }
  // The value of counters() when the connection ended.
  [[nodiscard]] NetCounters counters_after_end() const;

 private:
  // Receives what came by this path.
  void receive_data(std::uint32_t path);
  void receive_packet(std::span<const std::byte> packet, std::uint32_t path, bool marked, Time now);
  void receive_signals();
  // Calls on_arrival() of the transfers that segments arrived of.
  void tell_arrivals();
  void send_data();
  // Queues the signals that are due. Sends those that a transfer waits for as a datagram.
  void copy_signals();
  void send_copy();
  // The path of a copy: that of the data whose end it reports, or each in turn.
  std::uint32_t path_of_copy();
  // Does the same, and sends all queued signals on the stream.
  void send_signals();
  void deliver_events();
  void watch_writable();

  std::shared_ptr<EventLoop> loop_;
  std::string name_;
  std::uint32_t payload_;
  wire::JobToken job_;
  DscpTable dscp_;
  bool checksum_;
  LosePacket lose_packet_;  // empty except in tests
  std::unique_ptr<PacketGuard> guard_;
  std::optional<ControlStream> stream_;  // stream_ and udp_ are set until the connection ends
  std::vector<UdpSocket> udp_;           // [path]
  std::shared_ptr<HostGrants> grants_;   // null: this end gives none
  std::uint32_t number_;
  proto::RecordedEndpoint dlcp_;
  std::atomic<bool> connected_ = true;
  std::atomic<bool> data_vanishes_ = false;  // DlcpEndpoint::data_vanishes(), at the last request
  std::uint64_t requests_seen_ = 0;          // of DlcpCounters::requests
  bool close_when_settled_ = false;
  std::optional<Error> shut_;  // why new transfers are refused; none while they are accepted
  std::unordered_map<const Transfer::State*, std::shared_ptr<Transfer::State>> active_;

  std::vector<Transfer::State*> with_news_;  // transfers with arrivals that were not told yet

  std::uint32_t batch_limit_;
  proto::DataBatch batch_;
  std::array<std::array<std::byte, wire::data_overhead(true)>, UdpSocket::kMaxPackets> headers_;
  std::array<UdpPacket, UdpSocket::kMaxPackets> packets_;
  std::size_t packet_count_ = 0;
  std::uint8_t traffic_class_ = 0;
  std::uint32_t next_copy_ = 0;  // the path of the next copy that reports no end of data
  Time awake_until_;   // until then do not sleep: data arrives so fast that waking costs more
  bool busy_ = false;  // packets_ wait until the socket of their path takes them
  std::optional<std::uint32_t> watched_;  // the path whose socket is watched until it takes more
  bool watching_signals_ = false;

  std::uint64_t bad_packets_ = 0;
  std::uint64_t corrupt_packets_ = 0;
  std::uint64_t send_errors_ = 0;
  std::uint64_t grants_sent_ = 0;
  mutable std::mutex mutex_;
  NetCounters last_counters_;  // guarded by mutex_
};

}  // namespace thalweg::net
