// Packet loss that tests inject into DLCP endpoints and ATP nodes. Nothing but tests installs it.
//
//   const ScopedLoss loss([](std::uint64_t sequence) { return sequence % 10 == 3; });
//   auto lossy = Endpoint::create(options);
//
// A scope is the calling thread's own, so threads that make endpoints at the same time do not
// disturb each other. A communicator makes its endpoints in the thread of its first call over DLCP,
// and a parameter server or its client makes its endpoint in the thread that starts or connects it.
// The node of a communicator over ATP is made in the thread that creates the communicator.
#pragma once

#include <cstdint>
#include <functional>

namespace thalweg::net {

// Returns true to lose the data packet with this sequence number instead of sending it. For ATP the
// number counts the packets to one destination. The endpoint's thread calls it. Each connection has
// a copy.
using LosePacket = std::function<bool(std::uint64_t sequence)>;

// Endpoints that this thread makes while the scope exists lose packets, also after its end. Scopes
// may nest: the innermost holds.
class ScopedLoss {
 public:
  // An empty function: nothing is lost.
  explicit ScopedLoss(LosePacket lose);
  ~ScopedLoss();
  ScopedLoss(const ScopedLoss&) = delete;
  ScopedLoss& operator=(const ScopedLoss&) = delete;

 private:
  LosePacket before_;
};

// The function of this thread's innermost scope; empty without one.
[[nodiscard]] const LosePacket& installed_loss();

}  // namespace thalweg::net
