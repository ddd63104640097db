// The sum of a tensor over all workers, as its blocks come from an ATP server: one tensor at a
// time. No I/O. begin() is for the owner's thread, on_sum() for the node's.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "tensor/fixed_point.h"
#include "wire/atp_packet.h"

namespace thalweg {

class AtpSums {
 public:
  // `done` is called by on_sum() with the sum, and whether some element of it was beyond 32 bits.
  AtpSums(std::uint32_t block, int workers,
          std::function<void(std::vector<float> sum, bool saturated)> done)
      : block_(block), workers_(workers), done_(std::move(done)) {}

  // The next tensor, in the order in which workers start them; the one before must be done.
  // `exponents`: of its blocks, agreed.
  void begin(std::uint64_t elements, std::vector<BlockExponent> exponents);
  void on_sum(const AtpHeader& header, const std::int32_t* sum);

 private:
  const std::uint32_t block_;
  const int workers_;
  const std::function<void(std::vector<float>, bool)> done_;

  std::mutex mutex_;         // guards what follows
  std::uint64_t first_ = 0;  // sequence of the tensor's first block
  std::uint64_t next_ = 0;   // and of the next tensor's
  std::uint64_t left_ = 0;   // blocks that have not come
  bool saturated_ = false;
  std::vector<BlockExponent> exponents_;
  std::vector<float> sum_;
};

}  // namespace thalweg
