// The inside of a ParameterServer: its clients and what they ask for, in the loop's thread.
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
#include "net/event_loop.h"
#include "net/fd.h"
#include "net/stream_server.h"
#include "ps/atp_group.h"
#include "ps/dlcp_peers.h"
#include "ps/parameter_table.h"
#include "ps/request_reader.h"
#include "ps/server.h"

namespace thalweg {

// What the server keeps of a client.
struct PsClientState {
  enum class Waiting : std::uint8_t {
    kNothing,
    kValue,     // its pull may not be answered yet
    kPeer,      // its DLCP connection is not there yet
    kTransfer,  // its gradient is under way
    kOthers,    // the other workers, over ATP
  };
  RequestReader reader;
  std::optional<std::uint32_t> worker;  // once it has said so
  std::string peer_name;                // of its DLCP connection
  Waiting waiting = Waiting::kNothing;
  Time peer_by;
};

class ParameterServer::Core final : public StreamServer<PsClientState>::Owner {
 public:
  Core(const PsConfig& config, std::unique_ptr<EventLoop> loop, Fd listener,
       std::optional<DlcpPeers> peers);
  ~Core() override;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] Status start();
  // From any thread.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] Counters counters();

 private:
  using Client = StreamServer<PsClientState>::Client;
  using Waiting = PsClientState::Waiting;

  [[nodiscard]] bool on_readable(Client& client) override;
  void on_closed(Client& client) override;
  std::optional<Time> turn();

  // Whether the request would be refused, before its body is there.
  [[nodiscard]] Status check(const Client& client) const;
  // The request is complete. False: it is none of ours, and the connection is over.
  [[nodiscard]] bool serve(Client& client);
  void greet(Client& client);
  void pull(Client& client);
  void push_transfer(Client& client);
  // The transfer with a client's gradient is over.
  void end_push(std::uint64_t client, std::span<const float> gradient,
                const Result<TransferReport>& report);
  void send_value(Client& client, const ParameterTable::View& view);
  // Its DLCP connection. None: it waits for it, or was refused.
  [[nodiscard]] std::optional<Peer> peer_of(Client& client);
  // Pulls that wait may be answered now.
  void retry();
  void deliver(const AtpGroup::Replies& replies);
  void worker_left(std::uint32_t worker);

  void answer(Client& client, const ParameterTable::View& view);
  void refuse(Client& client, const Error& error);
  // Ends the request.
  void reply(Client& client, const PsHeader& header, std::span<const std::byte> body);

  PsConfig config_;
  std::unique_ptr<EventLoop> loop_;
  StreamServer<PsClientState> streams_;
  std::string address_;
  ParameterTable table_;
  std::map<std::uint32_t, std::uint64_t> by_worker_;  // the client that is this worker
  Counters counters_;
  AtpGroup group_;
  std::optional<DlcpPeers> peers_;  // with DLCP
  std::thread thread_;
};

}  // namespace thalweg
