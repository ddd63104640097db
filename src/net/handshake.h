// How two endpoints become peers: each says hello on a TCP connection, with its job token and the
// UDP port of its data. The side that connected speaks first; the other answers or refuses.
//
// With a job key both prove that they hold it before either believes anything else:
//
//   connected                            accepted
//   hello (session a) ─────────────────▶
//                     ◀───────────────── hello (session b), proof over both hellos
//   proof over both hellos ────────────▶
//
// A wrong proof ends it on both sides: the one that connected sends its own in any case, so that
// the other learns of the wrong key too.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "net/hello.h"
#include "net/key_exchange.h"
#include "net/link.h"

namespace thalweg {

// Connects and says hello, blocking until `until` at the latest. A peer that cannot be reached is
// tried again; one that refuses is an error at once.
[[nodiscard]] Result<Link::Parts> connect_peer(const std::string& address,
                                               const EndpointOptions& options, Time until);

// The side that was connected to, as part of the loop: no peer can make it wait.
class IncomingPeer final : public EventLoop::Handler {
 public:
  enum class State : std::uint8_t { kWaiting, kDone, kRefused };

  // Takes a connected, non-blocking socket.
  IncomingPeer(EventLoop& loop, Fd stream, const EndpointOptions& options, Time until);
  ~IncomingPeer() override { forget(); }
  IncomingPeer(const IncomingPeer&) = delete;
  IncomingPeer& operator=(const IncomingPeer&) = delete;

  void on_ready(int fd, std::uint32_t events) override;
  // Past its time it is refused.
  void on_timeout(Time now);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Time until() const { return until_; }
  // Who was refused, and why. Requires kRefused.
  [[nodiscard]] std::string refusal() const;
  // Requires kDone, once.
  Link::Parts take();

 private:
  void forget();
  void on_hello();
  void on_proof();
  // Ends it; the first tells the peer.
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
  std::string why_;  // refused
  std::array<std::byte, kHelloSize> received_ = {};
  std::size_t size_ = 0;
  std::size_t wanted_ = kHelloSize;
  std::unique_ptr<Link::Parts> parts_;  // from the answer on, without the stream before kDone
};

}  // namespace thalweg
