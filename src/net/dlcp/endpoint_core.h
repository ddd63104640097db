// The implementation of an Endpoint: its event loop and thread, its listener and its peers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/endpoint.h>

#include "net/auth/handshake.h"
#include "net/dlcp/dlcp_peer.h"
#include "net/dlcp/host_grants.h"
#include "net/dlcp/test_faults.h"
#include "net/io/event_loop.h"
#include "net/io/home_process.h"
#include "net/io/tcp_listener.h"

namespace thalweg {

struct Peer::State {
  explicit State(std::shared_ptr<net::DlcpPeer> of) : peer(std::move(of)) {}
  ~State() {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): it must outlive the process
    if (!home.here()) net::abandon(new std::shared_ptr(std::move(peer)));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  [[nodiscard]] Status at_home() const { return home.check("the endpoint"); }

  net::HomeProcess home;
  std::shared_ptr<net::DlcpPeer> peer;
};

class Endpoint::Core final : public net::EventLoop::Handler {
 public:
  static Result<std::unique_ptr<Core>> make(const EndpointOptions& options);
  ~Core() override;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const net::HomeProcess& home() const { return home_; }
  // These may be called from any thread.
  [[nodiscard]] const std::string& address() const { return address_; }
  Result<Peer> connect(const std::string& address, std::chrono::nanoseconds limit);
  Result<Peer> accept(std::chrono::nanoseconds limit);
  [[nodiscard]] NetCounters counters();

 private:
  Core(EndpointOptions options, std::shared_ptr<net::EventLoop> loop,
       std::shared_ptr<net::HostGrants> grants);
  Status listen();

  // These run in the loop's thread.
  void run();
  std::optional<Time> turn();
  std::optional<Time> turn_handshakes(Time now);
  void on_ready(int fd, std::uint32_t events) override;
  void adopt(const std::shared_ptr<net::DlcpPeer>& peer);
  // May be called from any thread.
  std::shared_ptr<net::DlcpPeer> make_peer(net::DlcpPeer::Parts parts);
  [[nodiscard]] NetCounters sum() const;  // in the loop's thread

  net::HomeProcess home_;
  EndpointOptions options_;
  net::LosePacket lose_packet_ = net::installed_loss();
  std::shared_ptr<net::EventLoop> loop_;
  std::string address_;
  std::optional<net::TcpListener> listener_;  // none: no peer can connect
  std::thread thread_;
  std::atomic<std::uint64_t> recordings_ = 0;
  std::shared_ptr<net::HostGrants> grants_;  // null: this end gives none

  // Accessed by the loop's thread only.
  std::vector<std::shared_ptr<net::DlcpPeer>> peers_;
  std::vector<std::unique_ptr<net::IncomingPeer>> incoming_;
  NetCounters ended_;  // sums over peers that are gone
  std::uint64_t refused_ = 0;
  std::optional<Time> shut_by_;  // while ending: when to stop even if some peers were not told

  std::mutex mutex_;  // guards all members below
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<net::DlcpPeer>> accepted_;
  std::string last_refusal_;  // the last refused peer and the cause
};

}  // namespace thalweg
