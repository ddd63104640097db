// A listening socket whose clients are taken in or told, also when the process has no descriptors
// left: a listener that stayed readable would keep its event loop busy for nothing.
#pragma once

#include <cstddef>
#include <functional>

#include "net/fd.h"

namespace thalweg {

class TcpListener {
 public:
  // `fd` listens and does not block. The process's limit of open files is raised towards twice
  // `most_clients` when it is met.
  TcpListener(Fd fd, std::size_t most_clients);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Takes all that wait: each is `take`'s, or `refuse` may say a word to it before it is closed,
  // since there is no descriptor to keep it by. Connections do not block.
  void accept_all(const std::function<void(Fd)>& take, const std::function<void(int)>& refuse);

 private:
  // False: there was none.
  bool refuse_one(const std::function<void(int)>& refuse);

  Fd fd_;
  Fd spare_;  // given up to refuse a client when there is no other
  std::size_t most_clients_;
};

}  // namespace thalweg
