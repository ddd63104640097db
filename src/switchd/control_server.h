// The control socket of a switch: JSON requests, one a line, each answered in turn. Runs in one
// event loop; what a request does is the handler's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>

#include <thalweg/result.h>

#include "net/event_loop.h"
#include "net/fd.h"

namespace thalweg {

class ControlServer final : public EventLoop::Handler {
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
      : loop_(loop), listener_(std::move(listener)), requests_(requests) {}
  ~ControlServer() override;
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  Status start();
  void on_ready(int fd, std::uint32_t events) override;

 private:
  struct Client {
    Fd fd;
    std::uint64_t number = 0;
    std::string in;
    std::string out;  // what the socket did not take
  };
  void accept_all();
  // False: the connection is over.
  bool receive(Client& client);
  void answer(Client& client, std::string_view line);
  bool flush(Client& client);
  void drop(int fd);

  EventLoop& loop_;
  Fd listener_;
  Requests& requests_;
  std::unordered_map<int, Client> clients_;  // by descriptor
  std::uint64_t next_number_ = 0;
};

}  // namespace thalweg
