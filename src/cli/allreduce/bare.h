// A rank of `thalweg bench allreduce --against bare`: what plain TCP sockets allow on this machine.
// It does what an allreduce cannot do without, and nothing else: no frames, no checks, no locks, no
// second thread.
//
// Large tensors by halving and doubling: with the partner at distance 1 a rank exchanges halves of
// the tensor and reduces its own, with the one at distance 2 halves of that, and so on; then all
// the way back without reducing. Small ones by recursive doubling: with each partner the whole
// tensor.
//
// 1. The partners at a distance differ in one bit of their ranks, so that both have chosen the same
//    halves before: the ranks are a power of two.
// 2. What is sent is not written to until the system has taken it.
// 3. A partner that ends is an error. One that hangs is waited for: the benchmark ends this process
//    when it takes too long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "base/units.h"
#include "net/fd.h"

namespace thalweg::allreduce {

// The largest tensor of recursive doubling, about where it stops being the faster of the two. Two
// ranks exchange as many bytes either way.
[[nodiscard]] constexpr Bytes most_doubled(int ranks) {
  return Bytes(std::int64_t{ranks == 2 ? 512 : 16} << 10);
}

class BareRank {
 public:
  // Who this is and where the ranks meet is in the environment, as for a rank of ours.
  [[nodiscard]] static Result<BareRank> meet(DType type, ReduceOp op, Time until);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // In place, until it is done.
  [[nodiscard]] Status allreduce(void* data, std::int64_t elements);

 private:
  struct Partner {
    int rank = 0;
    Fd stream;
  };

  BareRank(DType type, ReduceOp op);
  Status double_whole(std::span<std::byte> tensor);
  // What is left to do of a block after so many partners.
  Status halve_and_double(std::span<std::byte> block, std::size_t step);
  // Sends `out` and receives as much as `in`, which do not overlap, in turn; `reduces`: into what
  // `in` holds.
  Status exchange(const Partner& partner, std::span<const std::byte> out, std::span<std::byte> in,
                  bool reduces);

  DType type_;
  ReduceOp op_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<Partner> partners_;  // at distances 1, 2, 4, …
  std::vector<std::byte> received_;
};

}  // namespace thalweg::allreduce
