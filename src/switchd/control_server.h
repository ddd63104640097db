// The control socket of a switch: JSON requests, one a line, each answered in turn. Runs in one
// event loop; what a request does is the handler's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "net/event_loop.h"
#include "net/fd.h"
#include "net/stream_server.h"

namespace thalweg {

class ControlServer final : private StreamServer<std::string>::Owner {
 public:
  static constexpr std::size_t kMaxClients = 1024;

  class Requests {
   public:
    virtual ~Requests() = default;
    // The answer to a request of the connection numbered `client`.
    [[nodiscard]] virtual Result<nlohmann::json> on_request(std::uint64_t client,
                                                            const nlohmann::json& request) = 0;
    virtual void on_closed(std::uint64_t client) = 0;
  };

  // Both outlive it; `listener` listens.
  ControlServer(EventLoop& loop, Fd listener, Requests& requests)
      : requests_(requests), server_(loop, std::move(listener), kMaxClients, *this) {}

  [[nodiscard]] Status start() { return server_.start(); }

 private:
  // Of each, the line that has not ended.
  using Server = StreamServer<std::string>;

  [[nodiscard]] bool on_readable(Server::Client& client) override;
  void on_closed(Server::Client& client) override { requests_.on_closed(client.number); }
  void answer(Server::Client& client, std::string_view line);

  Requests& requests_;
  Server server_;
};

}  // namespace thalweg
