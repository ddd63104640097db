// ControlServer: the control socket of a switch. It reads JSON requests, one per line, and answers
// each in turn. It runs in one event loop; a Requests object decides what a request does.
//
// With a key, clients prove that they hold it before anything else, and all lines are sealed
// (net/auth/greeting.h). A client that has not done so in time is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/greeted_client.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/stream_server.h"

namespace thalweg::switchd {

// What the server stores for each client.
struct ControlClientState : net::GreetedClient {
  std::string in = {};  // the line that has not ended
};

class ControlServer final : private net::StreamServer<ControlClientState>::Owner {
 public:
  static constexpr std::size_t kMaxClients = 1024;

  // Who asks, and when.
  struct Requester {
    std::uint64_t client = 0;  // its number
    std::string host;          // the address that it connected from, without the port
    Time now;
  };

  class Requests {
   public:
    virtual ~Requests() = default;
    // Returns the answer to a request.
    [[nodiscard]] virtual Result<nlohmann::json> on_request(const Requester& from,
                                                            const nlohmann::json& request) = 0;
    virtual void on_closed(std::uint64_t client) = 0;
  };

  struct Options {
    std::optional<wire::JobKey> key = {};  // as its file holds it; none: all is sent in the clear
    Duration greeting_time = net::kGreetingTime;  // how long a client may take to prove the key
  };
  // `loop` and `requests` must outlive the server. `listener` is a listening socket.
  ControlServer(net::EventLoop& loop, net::Fd listener, const Options& options, Requests& requests);

  [[nodiscard]] Status start() { return server_.start(); }
  // Closes clients that are late with their key. Call it in every turn of the loop; returns when to
  // call it at the latest.
  [[nodiscard]] std::optional<Time> on_timeout(Time now);

 private:
  using State = ControlClientState;
  using Server = net::StreamServer<State>;

  [[nodiscard]] bool on_readable(Server::Client& client) override;
  void on_closed(Server::Client& client) override { requests_.on_closed(client.number); }
  [[nodiscard]] bool gives_way(const Server::Client& client) const override {
    return key_ && !client.state.has_proved();
  }
  void answer(Server::Client& client, std::string_view line);
  // Tells a client why it is refused, and takes nothing more from it.
  void end_refused(Server::Client& client);

  Duration greeting_time_;
  std::optional<wire::JobKey> key_;  // of this purpose
  Requests& requests_;
  Server server_;
};

}  // namespace thalweg::switchd
