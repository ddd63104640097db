// How two endpoints become peers: each sends a hello on a TCP connection, with its job token and
// the UDP ports for its data. The side that connected speaks first; the other answers or refuses.
// Port i of one side and port i of the other are the two ends of path i.
//
// With a job key both prove that they hold it before either trusts anything else:
//
//   connected                            accepted
//   hello (session a) ─────────────────▶
//                     ◀───────────────── hello (session b), proof over both hellos
//   proof over both hellos ────────────▶
//
// A wrong proof ends the handshake on both sides. The side that connected sends its proof even if
// it refuses the other's, so that the other learns of the wrong key too.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/hello.h"
#include "net/auth/key_exchange.h"
#include "net/dlcp/dlcp_peer.h"
#include "net/io/address.h"
#include "net/io/event_loop.h"

namespace thalweg::net {

// Connects to "host:port" and does the handshake, blocking until `until` at the latest. It tries
// again while the peer cannot be reached; a refusal is an error at once.
[[nodiscard]] Result<DlcpPeer::Parts> connect_peer(const std::string& address,
                                                   const EndpointOptions& options, Time until);

// The accepting side of one handshake, as part of the event loop: no peer can make it block.
class IncomingPeer final : public EventLoop::Handler {
 public:
  enum class State : std::uint8_t { kWaiting, kDone, kRefused };

  // Takes ownership of a connected, non-blocking socket. `loop` and `options` outlive this.
  IncomingPeer(EventLoop& loop, Fd stream, const EndpointOptions& options, Time until);
  ~IncomingPeer() override { forget(); }
  IncomingPeer(const IncomingPeer&) = delete;
  IncomingPeer& operator=(const IncomingPeer&) = delete;

  void on_ready(int fd, std::uint32_t events) override;
  // Refuses the peer if `until` has passed.
  void on_timeout(Time now);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Time until() const { return until_; }
  // The refused peer's address and the cause. Requires kRefused.
  [[nodiscard]] std::string refusal() const;
  // The sockets and keys of the new peer. Requires kDone; may be called once.
  DlcpPeer::Parts take();

 private:
  void forget();  // removes the socket from the loop
  void on_hello();
  void on_proof();
  // Both end the handshake with kRefused. refuse() also tells the peer why.
  void refuse(HelloStatus status);
  void drop(std::string why);
  void answer(const Hello& hello);
  void finish();

  EventLoop& loop_;
  Fd stream_;
  const EndpointOptions& options_;
  Time until_;
  State state_ = State::kWaiting;
  SocketAddress remote_;
  KeyExchange keys_;
  std::string why_;  // the cause of a refusal
  std::array<std::byte, kHelloSize> received_ = {};
  std::size_t size_ = 0;             // bytes in received_
  std::size_t wanted_ = kHelloSize;  // bytes of the message that is due: a hello, then a proof
  // Set when our answer was sent; the stream is added at kDone.
  std::unique_ptr<DlcpPeer::Parts> parts_;
};

}  // namespace thalweg::net
