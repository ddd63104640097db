// Memory for chunks, used again: what the system hands out anew costs a page fault every 4 KiB,
// which is more time than sending a chunk's packets takes.
//
// Blocks may be taken and dropped by any thread, and outlive the pool.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace thalweg {

class BlockPool {
 public:
  // At least so many bytes, whatever is in them, until the last pointer is gone.
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

}  // namespace thalweg
