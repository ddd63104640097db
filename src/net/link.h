// One peer: a DlcpEndpoint (recorded when that is asked for), and the sockets it speaks through. It
// makes no decision of the protocol's; it moves bytes and says what time it is.
//
// All methods are for the loop's thread, except the constructor, name(), payload(), connected() and
// counters_after_end().
//
// Invariants:
// 1. Every transfer given to start() ends once.
// 2. A tensor's memory is touched only between start() and its transfer's end.
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

#include <thalweg/endpoint.h>

#include "net/control_stream.h"
#include "net/event_loop.h"
#include "net/packet_guard.h"
#include "net/transfer_state.h"
#include "net/udp_socket.h"
#include "proto/dlcp/recorded_endpoint.h"

namespace thalweg {

class Link final : public EventLoop::Handler, public std::enable_shared_from_this<Link> {
 public:
  // What a handshake leaves behind: both sockets are connected.
  struct Parts {
    Fd stream;
    UdpSocket udp;
    std::string name;
    std::uint32_t payload = 0;
    std::unique_ptr<PacketGuard> guard = nullptr;  // null without a job key
  };

  Link(std::shared_ptr<EventLoop> loop, Parts parts, const EndpointOptions& options);

  // Writes down all that happens from here on. Requires that nothing has.
  void record(RecordSink sink) { dlcp_.record(std::move(sink)); }
  // Starts to listen to the sockets.
  void open();
  void start(const std::shared_ptr<Transfer::State>& transfer);
  void cancel(const Transfer::State& transfer);
  // Fails what is in flight, here and at the peer, and takes nothing new; settled() says when the
  // peer has been told.
  void shut(const std::string& cause);
  // The connection ends as soon as settled() holds.
  void close_when_settled() { close_when_settled_ = true; }
  // Ends the connection: every transfer fails with this cause.
  void lose(const std::string& cause);

  // Sends what may be sent and delivers what has ended. The next turn must come at the returned
  // time, or when a socket is ready.
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
  // What counters() said when the connection ended.
  [[nodiscard]] NetCounters counters_after_end() const;

 private:
  void receive_data();
  void receive_packet(std::span<const std::byte> packet, bool marked, Time now);
  void receive_signals();
  void send_data();
  // Those that are due, by datagram, as far as a transfer waits for them.
  void copy_signals();
  // The same, and all of them on the stream.
  void send_signals();
  void deliver_events();
  void watch_writable();

  std::shared_ptr<EventLoop> loop_;
  std::string name_;
  std::uint32_t payload_;
  JobToken job_;
  DscpTable dscp_;
  std::function<bool(std::uint64_t)> lose_packet_;
  std::unique_ptr<PacketGuard> guard_;
  std::optional<ControlStream> stream_;  // both until the connection ends
  std::optional<UdpSocket> udp_;
  RecordedEndpoint dlcp_;
  std::atomic<bool> connected_ = true;
  bool close_when_settled_ = false;
  std::string shut_;  // why nothing new is taken; empty while it is
  std::unordered_map<const Transfer::State*, std::shared_ptr<Transfer::State>> active_;

  std::uint32_t batch_limit_;
  DataBatch batch_;
  std::array<std::array<std::byte, data_overhead(true)>, UdpSocket::kMaxPackets> headers_;
  std::array<UdpPacket, UdpSocket::kMaxPackets> packets_;
  std::size_t packet_count_ = 0;
  std::uint8_t traffic_class_ = 0;
  Time awake_until_;   // data flows fast enough that sleeping costs more than looking again
  bool busy_ = false;  // packets_ wait for the socket
  bool watching_data_ = false;
  bool watching_signals_ = false;

  std::uint64_t bad_packets_ = 0;
  std::uint64_t send_errors_ = 0;
  mutable std::mutex mutex_;
  NetCounters last_counters_;  // with mutex_
};

}  // namespace thalweg
