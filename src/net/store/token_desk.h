// TokenDesk: hands the random token of a job to the job's other processes on the same host.
//
// It listens at a name that only processes of this network namespace reach (an abstract Unix
// socket), and the kernel tells who asks. So the name may be guessable: other hosts cannot ask, and
// other users get nothing.
//
// Invariants:
// 1. Only processes with the effective user of the one that opened the desk get the token.
// 2. Who asks believes only a desk of its own user.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <thalweg/result.h>

#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/tcp_listener.h"
#include "wire/wire.h"

namespace thalweg::net {

class TokenDesk final : private EventLoop::Handler {
 public:
  // `name`: at most 64 bytes. It is an error if a process has this name already.
  [[nodiscard]] static Result<std::unique_ptr<TokenDesk>> open(const std::string& name,
                                                               wire::JobToken token);
  ~TokenDesk() override;
  TokenDesk(const TokenDesk&) = delete;
  TokenDesk& operator=(const TokenDesk&) = delete;

  // The token that the desk of this name hands out. None: there is no such desk, or it is another
  // user's. Does not wait for a desk to open.
  [[nodiscard]] static std::optional<wire::JobToken> ask(const std::string& name);

 private:
  TokenDesk(std::unique_ptr<EventLoop> loop, Fd listener, wire::JobToken token);
  void on_ready(int fd, std::uint32_t events) override;

  std::unique_ptr<EventLoop> loop_;
  TcpListener listener_;
  wire::JobToken token_;
  std::thread thread_;
};

}  // namespace thalweg::net
