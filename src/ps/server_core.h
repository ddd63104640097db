// The implementation of a ParameterServer: its clients and their requests, in the loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/greeted_client.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/stream_server.h"
#include "ps/atp_group.h"
#include "ps/dlcp_peers.h"
#include "ps/parameter_table.h"
#include "ps/request_reader.h"
#include "ps/server.h"

namespace thalweg::ps {

// What the server stores for each client.
struct PsClientState : net::GreetedClient {
  enum class Waiting : std::uint8_t {
    kNothing,
    kValue,     // its pull must wait for a step or for other workers
    kPeer,      // its DLCP connection has not been made yet
    kTransfer,  // its gradient is in flight
    kOthers,    // it waits for the other workers, over ATP
  };
  RequestReader reader;
  std::optional<std::uint32_t> worker;  // set by its hello
  std::string peer_name;                // of its DLCP connection
  Waiting waiting = Waiting::kNothing;
  Time peer_by;  // kPeer: when the request is refused
  // A header of it changed on the way: what it sends is not looked at any more.
  bool spoiled = false;
};

class ParameterServer::Core final : public net::StreamServer<PsClientState>::Owner {
 public:
  Core(const PsConfig& config, std::unique_ptr<net::EventLoop> loop, net::Fd listener,
       std::string packet_key, std::optional<DlcpPeers> peers);
  ~Core() override;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] Status start();
  // These may be called from any thread.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] Counters counters();

 private:
  using Client = net::StreamServer<PsClientState>::Client;
  using Waiting = PsClientState::Waiting;

  [[nodiscard]] bool on_readable(Client& client) override;
  void on_closed(Client& client) override;
  [[nodiscard]] bool gives_way(const Client& client) const override {
    return key_ && !client.state.has_proved();
  }
  std::optional<Time> turn();

  // Reads what comes before the client is known to have no key, and what it seals.
  [[nodiscard]] bool read_greeted(Client& client);
  // Tells a client whose key does not fit why, and takes nothing more from it.
  void end_refused(Client& client);
  // Handles the bytes that have come. Returns false if the connection is over.
  [[nodiscard]] bool on_received(Client& client, std::size_t bytes);
  // Tells the client that its header changed on the way, or is another version's, and takes nothing
  // more from it.
  void end_spoiled(Client& client, RequestReader::Progress why);
  // Whether the request is acceptable, as far as known before its body arrives.
  [[nodiscard]] Status check(const Client& client) const;
  // Serves a complete request. Returns false if its kind is not a request; the connection is then
  // closed.
  [[nodiscard]] bool serve(Client& client);
  void greet(Client& client);
  void pull(Client& client);
  void push_transfer(Client& client);
  // The transfer of this client's gradient is over.
  void end_push(std::uint64_t client, std::span<const float> gradient,
                const Result<TransferReport>& report);
  void send_value(Client& client, const ParameterTable::View& view);
  // The client's DLCP connection. None: the client waits for it, or was refused.
  [[nodiscard]] std::optional<Peer> peer_of(Client& client);
  // Tries again to answer the pulls that wait.
  void retry();
  void deliver(const AtpGroup::Replies& replies);
  void worker_left(std::uint32_t worker);

  void answer(Client& client, const ParameterTable::View& view);
  void refuse(Client& client, const Error& error);
  void send_sealed(Client& client, std::span<const std::byte> bytes);
  // Sends the answer and gets ready for the client's next request.
  void reply(Client& client, const wire::PsHeader& header, std::span<const std::byte> body);

  PsConfig config_;
  std::optional<wire::JobKey> key_;  // of this purpose
  // read_greeted() and send_sealed() keep their memory here.
  std::vector<std::byte> received_;
  std::vector<std::byte> plain_;
  std::vector<std::byte> sealed_;
  std::string packet_key_;  // of DLCP, drawn at the start; empty without a key
  std::unique_ptr<net::EventLoop> loop_;
  net::StreamServer<PsClientState> streams_;
  std::string address_;
  ParameterTable table_;
  std::map<std::uint32_t, std::uint64_t> by_worker_;  // number of each worker's client
  Counters counters_;
  AtpGroup group_;
  std::optional<DlcpPeers> peers_;  // set if the transport is DLCP
  std::thread thread_;
};

}  // namespace thalweg::ps
