// How two endpoints become peers: each says hello on a TCP connection, with its job token and the
// UDP port of its data. The side that connected speaks first; the other answers or refuses.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/event_loop.h"
#include "net/hello.h"
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
  // Requires kDone, once.
  Link::Parts take();

 private:
  void forget();
  void refuse(HelloStatus status);
  void answer(const Hello& hello);

  EventLoop& loop_;
  Fd stream_;
  const EndpointOptions& options_;
  Time until_;
  State state_ = State::kWaiting;
  std::array<std::byte, kHelloSize> received_ = {};
  std::size_t size_ = 0;
  std::unique_ptr<Link::Parts> parts_;
};

}  // namespace thalweg
