#include "net/collective/block_pool.h"

#include <algorithm>
#include <utility>

namespace thalweg {
namespace {

// Blocks that nobody uses; of more, the oldest goes.
constexpr std::size_t kMostFree = 16;
// A block serves a request of at least this part of its size.
constexpr std::size_t kWaste = 4;

}  // namespace

std::shared_ptr<std::byte> BlockPool::take(std::size_t bytes) {
  Block block;
  {
    const std::lock_guard lock(free_->mutex);
    const auto fits = std::ranges::find_if(
        free_->blocks, [&](const Block& b) { return b.size >= bytes && b.size / kWaste <= bytes; });
    if (fits != free_->blocks.end()) {
      block = std::move(*fits);
      free_->blocks.erase(fits);
    }
  }
  if (!block.memory) block = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  std::byte* const memory = block.memory.release();
  return {memory, [size = block.size, free = free_](std::byte* freed) {
            Block back{std::unique_ptr<std::byte[]>(freed), size};
            Block oldest;  // freed without the lock
            const std::lock_guard lock(free->mutex);
            free->blocks.push_back(std::move(back));
            if (free->blocks.size() <= kMostFree) return;
            oldest = std::move(free->blocks.front());
            free->blocks.erase(free->blocks.begin());
          }};
}

}  // namespace thalweg
