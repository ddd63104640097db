// Changes of packets that tests inject into UDP sockets, as a faulty card or switch would make them
// behind the checksums of Ethernet and UDP. Nothing but tests installs it.
//
//   const ScopedChanges changes([](std::span<std::byte> packet) { packet[9] ^= std::byte{4}; });
//   auto socket = UdpSocket::bind(local, options);
//
// A scope is the calling thread's own (net/dlcp/test_faults.h says which thread makes the sockets
// of DLCP and ATP; a switch makes its own in the thread that starts it).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace thalweg::net {

// Called with every packet that arrives, by the thread that receives it. Each socket has a copy.
using ChangePacket = std::function<void(std::span<std::byte> packet)>;

// Sockets that this thread makes while the scope exists receive changed packets, also after its
// end. Scopes may nest: the innermost holds.
class ScopedChanges {
 public:
  // An empty function: nothing is changed.
  explicit ScopedChanges(ChangePacket change);
  ~ScopedChanges();
  ScopedChanges(const ScopedChanges&) = delete;
  ScopedChanges& operator=(const ScopedChanges&) = delete;

 private:
  ChangePacket before_;
};

// The function of this thread's innermost scope; empty without one.
[[nodiscard]] const ChangePacket& installed_changes();

}  // namespace thalweg::net
