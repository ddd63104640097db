// One end of the stream between rank 0 and another rank of a CollNet communicator. It never waits.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "nccl/coll_message.h"
#include "net/io/fd.h"

namespace thalweg::nccl {

class CollLine {
 public:
  // `fd`: does not block. `peer`: the address of the other end, for messages.
  CollLine(net::Fd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool open() const { return fd_.valid(); }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  void close() { fd_.reset(); }

  // Adds what has come to `messages`. False: the stream has ended. An error is a message that is
  // wrong.
  [[nodiscard]] Result<bool> read(std::vector<CollMessage>& messages);
  // Sends, or keeps what the socket does not take now.
  void send(const CollMessage& message);
  // Sends what was kept; true: nothing is left.
  bool flush();

 private:
  net::Fd fd_;
  std::string peer_;
  std::string in_;
  std::string out_;
};

}  // namespace thalweg::nccl
