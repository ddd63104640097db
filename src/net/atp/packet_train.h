// Packets to the same ends, collected so that many leave by one system call. Not for protocols that
// must know whether a packet left: what the socket does not take is lost, as in a full queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/address.h"
#include "net/udp_socket.h"

namespace thalweg {

class PacketTrain {
 public:
  struct Counters {
    std::uint64_t packets = 0;  // to each end
    std::uint64_t bytes = 0;
    std::uint64_t lost = 0;  // of all ends: the socket did not take them
  };

  // What is put in goes to every one of `ends`. The socket outlives it.
  PacketTrain(UdpSocket& socket, std::vector<SocketAddress> ends);

  // Room for the next packet, to be filled before the next call. Sends those before it when they
  // must not wait for it. Requires 1 <= size <= UdpSocket::kMaxMessage.
  [[nodiscard]] std::span<std::byte> add(std::size_t size);
  void flush();
  [[nodiscard]] bool empty() const { return used_ == 0; }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  UdpSocket& socket_;
  std::vector<SocketAddress> ends_;
  std::vector<std::byte> bytes_;
  std::size_t used_ = 0;
  std::size_t packets_ = 0;
  std::size_t packet_size_ = 0;  // of all but the last
  bool closed_ = false;          // the last one is shorter
  Counters counters_;
};

}  // namespace thalweg
