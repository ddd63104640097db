#include "net/group/dlcp/block_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>

namespace thalweg::net {
namespace {

TEST(BlockPool, take__memory_is_used_again_where_it_fits) {
  auto pool = std::make_unique<BlockPool>();
  std::shared_ptr<std::byte> large = pool->take(1 << 20);
  std::shared_ptr<std::byte> other = pool->take(1 << 20);
  EXPECT_NE(large.get(), other.get());
  std::memset(large.get(), 1, 1 << 20);
  const std::byte* const where = large.get();
  large.reset();
  const std::shared_ptr<std::byte> small = pool->take(16);
  EXPECT_NE(small.get(), where) << "a large block is not wasted on little";
  EXPECT_EQ(pool->take(1 << 19).get(), where);
  pool.reset();
  std::memset(other.get(), 1, 1 << 20);  // blocks outlive the pool
}

TEST(BlockPool, take__what_is_too_large_to_keep_drives_nothing_out) {
  BlockPool pool;
  std::shared_ptr<std::byte> small = pool.take(1 << 20);
  const std::byte* const where = small.get();
  small.reset();
  pool.take((std::size_t{128} << 20) + 1).reset();
  EXPECT_EQ(pool.take(1 << 20).get(), where);
}

}  // namespace
}  // namespace thalweg::net
