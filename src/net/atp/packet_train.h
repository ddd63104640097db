// Collects packets to the same destinations and sends many of them by one system call. Destinations
// beyond routers that choose a route by ports may be sent to from several sockets, each of which is
// a path; packets that leave by one call share a path. Packets that
// the socket does not take are lost, as in a full queue, so protocols that must know whether a
// packet was sent cannot use this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/dlcp/test_faults.h"
#include "net/io/address.h"
#include "net/io/udp_socket.h"

namespace thalweg::net {

class PacketTrain {
 public:
  struct Counters {
    std::uint64_t packets = 0;  // sent to each destination, or to all but one
    std::uint64_t bytes = 0;
    std::uint64_t lost = 0;  // packets that the socket did not take, over all destinations
  };

  struct End {
    SocketAddress address;
    std::uint32_t paths = 1;  // above 1: its packets are spread over so many
  };

  // Every packet goes to all of `ends`. `socket` outlives this. Tests may let it lose packets
  // (net/dlcp/test_faults.h).
  PacketTrain(UdpSocket& socket, std::vector<SocketAddress> ends);
  // `sockets`: those of the paths, at least as many as the most paths of an end.
  PacketTrain(std::vector<UdpSocket*> sockets, std::vector<End> ends);

  // Returns room for the next packet, which the caller fills before the next call. First sends the
  // packets before it if this one cannot join their message. Requires 1 <= size <=
  // UdpSocket::kMaxMessage. `path`: to ends with several paths; below their number. `except`: the
  // packet does not go to this end, by its place in `ends`.
  [[nodiscard]] std::span<std::byte> add(std::size_t size, std::uint32_t path = 0,
                                         std::optional<std::size_t> except = {});
  void flush();
  // From now on packets go to this end instead. Requires that none waits.
  void redirect(const End& end);
  [[nodiscard]] bool empty() const { return used_ == 0; }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // Sends what waits to one end, all but the packets that are not for it.
  UdpSocket::Sent send_to(std::size_t end);

  std::vector<UdpSocket*> sockets_;
  std::vector<End> ends_;
  bool spread_ = false;           // an end has several paths
  std::uint32_t path_ = 0;        // of the packets that wait
  std::vector<std::byte> bytes_;  // made for the first packet
  std::size_t used_ = 0;
  std::size_t packets_ = 0;
  std::size_t packet_size_ = 0;  // size of all packets except the last
  bool excepts_ = false;         // some packet that waits is not for all ends
  std::array<std::size_t, UdpSocket::kMaxPackets> except_ = {};  // [packet]: an end, or kNone
  bool closed_ = false;  // the last packet is shorter, so no more can follow it
  Counters counters_;
  LosePacket lose_packet_ = installed_loss();
  std::uint64_t offered_ = 0;         // packets that were added, if some are to be lost
  std::vector<std::byte> lost_room_;  // where a packet is written that is to be lost
};

}  // namespace thalweg::net
