// A UDP socket that sends and receives many packets per system call. It is either connected to one
// other end, or each call names the destination.
//
// Sending: packets of one length (the last may be shorter) and one tag are one message to the
// kernel, which cuts it into packets (UDP_SEGMENT); the network card may do so instead, or the
// receiving side of a virtual device. Receiving: the kernel hands over a run of packets at once
// (UDP_GRO). Where a system has neither, one call sends many messages, and one call receives one
// packet.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/test_changes.h"

namespace thalweg::net {

struct UdpOptions {
  std::size_t receive_buffer_bytes = 0;
  std::size_t send_buffer_bytes = 0;
  bool offload = true;  // use UDP_SEGMENT and UDP_GRO
  // Called once for each buffer that is smaller than wanted.
  std::function<void(const std::string&)> warn = {};
  // Bind to the port of the local address; if false, to any free port.
  bool keep_port = false;
};

// One packet to send. Header and payload are separate, so that the payload is sent from where it
// lies.
struct UdpPacket {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  [[nodiscard]] std::size_t size() const { return header.size() + payload.size(); }
};

class UdpSocket {
 public:
  // Packets and bytes of one message to the kernel; UDP_SEGMENT allows no more.
  static constexpr std::size_t kMaxPackets = 64;
  static constexpr std::size_t kMaxMessage = 65'000;

  enum class Sent : std::uint8_t {
    kAll,
    kBusy,    // the socket takes no more now: send the same packets again when it is writable
    kLost,    // the kernel dropped the packets, as a network would
    kTooBig,  // the packets exceed the path's MTU, mtu()
  };
  enum class Received : std::uint8_t { kPackets, kNothing };
  // What one receive() returned: packets of `packet_size` bytes each; the last may be shorter.
  struct Arrival {
    std::span<const std::byte> bytes;
    std::size_t packet_size = 0;
    bool marked = false;  // ECN: congestion experienced
  };

  // A non-blocking socket bound to `local`, with any port unless options.keep_port is set.
  static Result<UdpSocket> bind(SocketAddress local, const UdpOptions& options);
  // Up to `count` (above 0) such sockets with consecutive ports, the first of which is any. Fewer
  // if the system has no such row of free ports or no more descriptors. Ignores options.keep_port.
  static Result<std::vector<UdpSocket>> bind_row(SocketAddress local, std::size_t count,
                                                 const UdpOptions& options);
  Status connect(const SocketAddress& remote);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint16_t port() const { return SocketAddress::local_of(fd()).port(); }
  // The path's MTU in bytes as far as the kernel knows it, or 1500. Requires connect().
  [[nodiscard]] std::size_t mtu() const;
  // Bytes of the IP and UDP headers of a packet.
  [[nodiscard]] std::size_t header_bytes() const { return family_ == AF_INET ? 28 : 48; }

  // Requires 1 to kMaxPackets packets of at most kMaxMessage bytes in total, equally long except
  // that the last may be shorter. `traffic_class`: DSCP and ECN bits. `to`: the destination; null
  // on a connected socket. After kBusy the caller sends the same packets again, or calls abandon().
  Sent send(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
            const SocketAddress* to = nullptr);
  // The same for packets that lie one after the other, each of `packet_size` bytes except the last.
  Sent send_run(std::span<const std::byte> bytes, std::size_t packet_size,
                std::uint8_t traffic_class, const SocketAddress* to = nullptr);
  // Forgets the packets of the last kBusy: the caller will not send them again.
  void abandon() { sent_of_batch_ = 0; }
  // out.bytes stay valid until the next call. `from`, if not null, gets the sender's address.
  Received receive(Arrival& out, SocketAddress* from = nullptr);

  [[nodiscard]] std::uint64_t send_calls() const { return send_calls_; }
  [[nodiscard]] std::uint64_t receive_calls() const { return receive_calls_; }

 private:
  UdpSocket(Fd fd, int family, bool offload);
  // Sends the first `pieces` of pieces_ as one message. Returns none if the system cannot cut
  // messages to this destination.
  std::optional<Sent> send_pieces(std::size_t pieces, std::size_t packet_size, bool several,
                                  std::uint8_t traffic_class, const SocketAddress* to);
  Sent send_each(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
                 const SocketAddress* to);
  void change_packets(std::size_t size, std::size_t packet_size);
  std::size_t fill_control(std::span<std::byte> control, std::uint8_t traffic_class,
                           std::size_t packet_size) const;

  Fd fd_;
  int family_;
  bool offload_;
  std::size_t sent_of_batch_ = 0;  // packets of a busy batch that send_each() has sent
  std::vector<iovec> pieces_;
  std::vector<std::byte> buffer_;
  ChangePacket change_ = installed_changes();  // empty except in tests
  std::uint64_t send_calls_ = 0;
  std::uint64_t receive_calls_ = 0;
};

}  // namespace thalweg::net
