// A listening socket that accepts or refuses every waiting client, even when the process has no
// descriptors left. Otherwise it would stay readable and keep its event loop spinning.
#pragma once

#include <cstddef>
#include <functional>

#include "net/io/fd.h"

namespace thalweg::net {

class TcpListener {
 public:
  // Requires a listening, non-blocking `fd`. When the process reaches its limit of open files, the
  // limit is raised towards twice `most_clients`.
  TcpListener(Fd fd, std::size_t most_clients);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Accepts all waiting clients and hands each to `take`, as a non-blocking socket. If there is no
  // descriptor left to keep a client, `refuse` may send it a message before it is closed.
  void accept_all(const std::function<void(Fd)>& take, const std::function<void(int)>& refuse);

 private:
  // Returns false if no client was waiting.
  bool refuse_one(const std::function<void(int)>& refuse);

  Fd fd_;
  Fd spare_;  // closed for a moment to accept and refuse a client when there is no other descriptor
  std::size_t most_clients_;
};

}  // namespace thalweg::net
