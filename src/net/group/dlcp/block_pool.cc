#include "net/group/dlcp/block_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace thalweg::net {
namespace {

// The most unused blocks, and their bytes. If there are more, the oldest are freed.
constexpr std::size_t kMostFree = 16;
constexpr std::size_t kMostFreeBytes = std::size_t{128} << 20;
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
      free_->bytes -= block.size;
    }
  }
  if (!block.memory) block = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  std::byte* const memory = block.memory.release();
  return {memory, [size = block.size, free = free_](std::byte* freed) {
            Block back{std::unique_ptr<std::byte[]>(freed), size};
            if (size > kMostFreeBytes) return;  // it would displace all others
            std::vector<Block> oldest;          // freed without the lock
            const std::lock_guard lock(free->mutex);
            free->blocks.push_back(std::move(back));
            free->bytes += size;
            while (free->blocks.size() > kMostFree || free->bytes > kMostFreeBytes) {
              free->bytes -= free->blocks.front().size;
              oldest.push_back(std::move(free->blocks.front()));
              free->blocks.pop_front();
            }
          }};
}

}  // namespace thalweg::net
