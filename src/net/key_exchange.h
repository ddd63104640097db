// How one end of a new connection shows that it holds the job key, and sees that the other does.
//
// Each end draws a session number and says it in its hello. A proof covers both hellos, and so
// names, ports and payloads too; it is worth nothing in another connection. Without a key there is
// nothing to prove.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <thalweg/endpoint.h>

#include "net/hello.h"
#include "net/packet_guard.h"
#include "wire/authenticate.h"

namespace thalweg {

class KeyExchange {
 public:
  enum class Role : std::uint32_t { kConnected, kAccepted };

  // Requires options that were validated.
  KeyExchange(const EndpointOptions& options, Role role);

  [[nodiscard]] bool keyed() const { return key_.has_value(); }
  // What our hello says of the key.
  void fill(Hello& hello) const;

  // Once both hellos were said: `first` by the end that connected. All that follow require it, and
  // a key.
  void on_hellos(std::span<const std::byte, kHelloSize> first,
                 std::span<const std::byte, kHelloSize> second, std::uint64_t their_session);
  [[nodiscard]] const SessionProof& our_proof() const { return ours_; }
  [[nodiscard]] bool proves(std::span<const std::byte, kSessionProofSize> theirs) const;
  [[nodiscard]] std::unique_ptr<PacketGuard> guard() const;

 private:
  JobToken job_;
  std::optional<JobKey> key_;
  KeyScope outgoing_;
  SessionProof ours_ = {};
  SessionProof theirs_ = {};
};

}  // namespace thalweg
