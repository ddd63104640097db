// A UDP socket that sends and receives many packets a system call: connected to one other end, or
// to whom each call says.
//
// Sending: packets of one length (the last may be shorter) and one tag are one message to the
// kernel, which cuts it (UDP_SEGMENT); the card or the other end of a virtual link may do it later
// still. Receiving: the kernel hands over a run of packets at once (UDP_GRO). Where a system has
// neither, one call sends many messages, and one call receives one packet.
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

#include "net/address.h"
#include "net/fd.h"

namespace thalweg {

struct UdpOptions {
  std::size_t receive_buffer_bytes = 0;
  std::size_t send_buffer_bytes = 0;
  bool offload = true;
  // Told once if the buffers are smaller than wanted.
  std::function<void(const std::string&)> warn = {};
  // Bound to the port of the address, not to any.
  bool keep_port = false;
};

// One packet to be sent: two pieces of memory, so that payload is sent from where it lies.
struct UdpPacket {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  [[nodiscard]] std::size_t size() const { return header.size() + payload.size(); }
};

class UdpSocket {
 public:
  // What one message may hold: the kernel's limits on cutting.
  static constexpr std::size_t kMaxPackets = 64;
  static constexpr std::size_t kMaxMessage = 65'000;

  enum class Sent : std::uint8_t {
    kAll,
    kBusy,    // the socket takes no more now: send the same again when it is writable
    kLost,    // the kernel dropped them, as a network would
    kTooBig,  // for the path's MTU, mtu()
  };
  enum class Received : std::uint8_t { kPackets, kNothing };
  // What one call brought: packets of `packet_size` each, the last may be shorter.
  struct Arrival {
    std::span<const std::byte> bytes;
    std::size_t packet_size = 0;
    bool marked = false;  // congestion experienced
  };

  // Bound to `local`, with any port unless the options say otherwise.
  static Result<UdpSocket> bind(SocketAddress local, const UdpOptions& options);
  Status connect(const SocketAddress& remote);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint16_t port() const { return SocketAddress::local_of(fd()).port(); }
  // Of the path as far as the kernel knows it. Requires connect().
  [[nodiscard]] std::size_t mtu() const;
  // IP and UDP headers of a packet.
  [[nodiscard]] std::size_t header_bytes() const { return family_ == AF_INET ? 28 : 48; }

  // Requires 1 to kMaxPackets packets of at most kMaxMessage bytes in all, equally long except that
  // the last may be shorter. `traffic_class`: DSCP and ECN bits. `to`: not needed of a connected
  // socket.
  Sent send(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
            const SocketAddress* to = nullptr);
  // The same of packets that lie one after the other, each of `packet_size` bytes but the last.
  Sent send_run(std::span<const std::byte> bytes, std::size_t packet_size,
                std::uint8_t traffic_class, const SocketAddress* to = nullptr);
  // What was busy will not be sent again.
  void abandon() { sent_of_batch_ = 0; }
  // The bytes are good until the next call. `from`: who sent them.
  Received receive(Arrival& out, SocketAddress* from = nullptr);

  [[nodiscard]] std::uint64_t send_calls() const { return send_calls_; }
  [[nodiscard]] std::uint64_t receive_calls() const { return receive_calls_; }

 private:
  UdpSocket(Fd fd, int family, bool offload);
  // The first `pieces` of pieces_ as one message. None: the system cannot cut it on this way.
  std::optional<Sent> send_pieces(std::size_t pieces, std::size_t packet_size, bool several,
                                  std::uint8_t traffic_class, const SocketAddress* to);
  Sent send_each(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
                 const SocketAddress* to);
  std::size_t fill_control(std::span<std::byte> control, std::uint8_t traffic_class,
                           std::size_t packet_size) const;

  Fd fd_;
  int family_;
  bool offload_;
  std::size_t sent_of_batch_ = 0;  // send_each: those of a busy batch that have left
  std::vector<iovec> pieces_;
  std::vector<std::byte> buffer_;
  std::uint64_t send_calls_ = 0;
  std::uint64_t receive_calls_ = 0;
};

}  // namespace thalweg
