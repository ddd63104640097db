// The inside of an Endpoint: its loop and thread, its listener, its links.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/endpoint.h>

#include "net/event_loop.h"
#include "net/handshake.h"
#include "net/link.h"
#include "net/tcp_listener.h"

namespace thalweg {

struct Peer::State {
  std::shared_ptr<Link> link;
};

class Endpoint::Core final : public EventLoop::Handler {
 public:
  static Result<std::unique_ptr<Core>> make(const EndpointOptions& options);
  ~Core() override;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // From any thread.
  [[nodiscard]] const std::string& address() const { return address_; }
  Result<Peer> connect(const std::string& address, std::chrono::nanoseconds limit);
  Result<Peer> accept(std::chrono::nanoseconds limit);
  [[nodiscard]] NetCounters counters();

 private:
  Core(EndpointOptions options, std::shared_ptr<EventLoop> loop);
  Status listen();

  // The loop's thread.
  void run();
  std::optional<Time> turn();
  std::optional<Time> turn_handshakes(Time now);
  void on_ready(int fd, std::uint32_t events) override;
  void adopt(const std::shared_ptr<Link>& link);
  // From any thread.
  std::shared_ptr<Link> make_link(Link::Parts parts);
  [[nodiscard]] NetCounters sum() const;

  EndpointOptions options_;
  std::shared_ptr<EventLoop> loop_;
  std::string address_;
  std::optional<TcpListener> listener_;  // none: nobody can connect
  std::thread thread_;
  std::atomic<std::uint64_t> recordings_ = 0;

  // The loop's thread only.
  std::vector<std::shared_ptr<Link>> links_;
  std::vector<std::unique_ptr<IncomingPeer>> incoming_;
  NetCounters ended_;  // of links that are gone
  std::uint64_t refused_ = 0;
  std::optional<Time> shut_by_;  // ending: how long peers may take to hear of it

  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Link>> accepted_;
  std::string last_refusal_;  // which peer, and why
};

}  // namespace thalweg
