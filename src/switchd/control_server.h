// ControlServer: the control socket of a switch. It reads JSON requests, one per line, and answers
// each in turn. It runs in one event loop; a Requests object decides what a request does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/stream_server.h"

namespace thalweg::switchd {

class ControlServer final : private net::StreamServer<std::string>::Owner {
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

  // `loop` and `requests` must outlive the server. `listener` is a listening socket.
  ControlServer(net::EventLoop& loop, net::Fd listener, Requests& requests)
      : requests_(requests), server_(loop, std::move(listener), kMaxClients, *this) {}

  [[nodiscard]] Status start() { return server_.start(); }

 private:
  // The server keeps for each client the line that has not ended.
  using Server = net::StreamServer<std::string>;

  [[nodiscard]] bool on_readable(Server::Client& client) override;
  void on_closed(Server::Client& client) override { requests_.on_closed(client.number); }
  void answer(Server::Client& client, std::string_view line);

  Requests& requests_;
  Server server_;
};

}  // namespace thalweg::switchd
