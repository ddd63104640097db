// Memory for chunks that is used again and again. Memory that the system hands out anew costs a
// page fault every 4 KiB, which takes longer than sending a chunk's packets.
//
// Any thread may take and drop blocks. Blocks may outlive the pool.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace thalweg::net {

class BlockPool {
 public:
  // Returns at least `bytes` bytes of undefined content, which last until the last pointer is gone.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
  };
  struct Free {
    std::mutex mutex;
    std::deque<Block> blocks;
    std::size_t bytes = 0;
  };
  std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace thalweg::net
