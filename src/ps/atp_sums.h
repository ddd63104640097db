// Collects the sum of a tensor over all workers from the blocks that an ATP server completes, one
// tensor at a time. No I/O. The owner's thread calls begin(), the ATP node's thread on_sum().
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "tensor/fixed_point.h"
#include "wire/atp_packet.h"

namespace thalweg::ps {

class AtpSums {
 public:
  // `block`: elements of a block. on_sum() calls `done` with the complete sum; `saturated`: some
  // element did not fit 32 bits.
  AtpSums(std::uint32_t block, int workers,
          std::function<void(std::vector<float> sum, bool saturated)> done)
      : block_(block), workers_(workers), done_(std::move(done)) {}

  // Starts the next tensor, in the order in which the workers start theirs. Requires that the one
  // before is done. `exponents`: those that the workers agreed on, one per block.
  void begin(std::uint64_t elements, std::vector<tensor::BlockExponent> exponents);
  void on_sum(const wire::AtpHeader& header, const std::int32_t* sum);

 private:
  const std::uint32_t block_;
  const int workers_;
  const std::function<void(std::vector<float>, bool)> done_;

  std::mutex mutex_;         // guards all members below
  std::uint64_t first_ = 0;  // sequence of this tensor's first block
  std::uint64_t next_ = 0;   // sequence of the next tensor's first block
  std::uint64_t left_ = 0;   // blocks that have not arrived
  bool saturated_ = false;
  std::vector<tensor::BlockExponent> exponents_;
  std::vector<float> sum_;
};

}  // namespace thalweg::ps
