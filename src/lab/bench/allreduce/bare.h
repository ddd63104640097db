// A rank of `thalweg bench allreduce --against bare`, which shows what plain TCP sockets allow on
// this machine. It does only what every allreduce must do: it has no frames, no checks, no locks
// and no second thread.
//
// Large tensors are reduced by halving and doubling. A rank exchanges halves of the tensor with the
// partner at distance 1 and reduces its own half, then halves of that half with the partner at
// distance 2, and so on. Then it goes all the way back, exchanging without reducing. Small tensors
// are reduced by recursive doubling: the rank exchanges the whole tensor with each partner.
//
// 1. Partners at a distance differ in one bit of their ranks, so that both have chosen the same
//    halves before. Therefore the number of ranks is a power of two.
// 2. Memory that is being sent is not written to until the system has taken it.
// 3. A partner that ends is an error. A partner that hangs is waited for: the benchmark ends this
//    process when it takes too long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "base/units.h"
#include "net/io/fd.h"

namespace thalweg::lab::allreduce {

// The largest tensor that is reduced by recursive doubling. Above about this size, halving and
// doubling is faster. The limit is larger for two ranks, which exchange the same number of bytes
// either way.
[[nodiscard]] constexpr Bytes most_doubled(int ranks) {
  return Bytes(std::int64_t{ranks == 2 ? 512 : 16} << 10);
}

class BareRank {
 public:
  // Connects to all partners. The environment says which rank this is and where the ranks meet, as
  // for a rank of Thalweg.
  [[nodiscard]] static Result<BareRank> meet(DType type, ReduceOp op, Time until);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // Reduces in place, and returns when it is done.
  [[nodiscard]] Status allreduce(void* data, std::int64_t elements);

 private:
  struct Partner {
    int rank = 0;
    net::Fd stream;
  };

  BareRank(DType type, ReduceOp op);
  Status double_whole(std::span<std::byte> tensor);
  // Reduces `block` with the partners from number `step` on.
  Status halve_and_double(std::span<std::byte> block, std::size_t step);
  // Sends `out` and receives into `in`, in turn. With `reduces`, what is received is reduced into
  // what `in` holds. The two must not overlap.
  Status exchange(const Partner& partner, std::span<const std::byte> out, std::span<std::byte> in,
                  bool reduces);

  DType type_;
  ReduceOp op_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<Partner> partners_;  // at distances 1, 2, 4, …
  std::vector<std::byte> received_;
};

}  // namespace thalweg::lab::allreduce
