// How one end of a new connection proves that it holds the job key and checks that the other end
// does.
//
// Each end draws a random session number and sends it in its hello. A proof covers both hellos, and
// with them names, ports and payloads, so it is worthless in another connection. Without a key
// there is nothing to prove.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <thalweg/endpoint.h>

#include "net/auth/hello.h"
#include "net/auth/packet_guard.h"
#include "wire/authenticate.h"

namespace thalweg::net {

class KeyExchange {
 public:
  enum class Role : std::uint32_t { kConnected, kAccepted };

  // Requires validated options.
  KeyExchange(const EndpointOptions& options, Role role);

  [[nodiscard]] bool keyed() const { return key_.has_value(); }
  // Fills in our hello's `keyed` and `session`.
  void fill(Hello& hello) const;

  // Call it when both hellos are known; `first` is the one of the end that connected. This method
  // and all that follow require a key; those that follow also require this call.
  void on_hellos(std::span<const std::byte, kHelloSize> first,
                 std::span<const std::byte, kHelloSize> second, std::uint64_t their_session);
  [[nodiscard]] const wire::SessionProof& our_proof() const { return ours_; }
  // Whether `theirs` is the proof that the other end must send.
  [[nodiscard]] bool proves(std::span<const std::byte, wire::kSessionProofSize> theirs) const;
  // The guard for the packets and messages of this connection.
  [[nodiscard]] std::unique_ptr<PacketGuard> guard() const;

 private:
  wire::JobToken job_;
  std::optional<wire::JobKey> key_;
  wire::KeyScope outgoing_;  // of what this end sends
  wire::SessionProof ours_ = {};
  wire::SessionProof theirs_ = {};  // what the other end must send
};

}  // namespace thalweg::net
