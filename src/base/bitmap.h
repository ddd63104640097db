// Bitmap: a set of small integers, such as the segments of a tensor that have arrived.
//
// Setting a bit and count() are O(1). rank() and the searches for missing bits skip whole blocks of
// 512 bits by the count that each block keeps.
//
// Invariants:
// 1. block_counts_[b] is the number of set bits in block b; count_ is their sum.
// 2. Bits at and above size() are clear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace thalweg {

class Bitmap {
 public:
  // The bits [begin, end).
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] std::size_t size() const { return end - begin; }
    [[nodiscard]] bool empty() const { return begin == end; }
    bool operator==(const Run&) const = default;
  };

  Bitmap() = default;
  explicit Bitmap(std::size_t size);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool full() const { return count_ == size_; }
  [[nodiscard]] bool test(std::size_t i) const;

  // Returns whether the bit was clear before.
  bool set(std::size_t i);
  // Returns whether the bit was set before.
  bool clear(std::size_t i);
  void clear_all();

  // The number of set bits below i. Requires i <= size().
  [[nodiscard]] std::size_t rank(std::size_t i) const;

  // The first clear bit at or after `from`; size() if there is none.
  [[nodiscard]] std::size_t next_missing(std::size_t from) const;

  // The first run of clear bits at or after `from`; an empty run at size() if there is none.
  // Loop:  for (auto run = m.missing_run(0); !run.empty(); run = m.missing_run(run.end))
  [[nodiscard]] Run missing_run(std::size_t from) const;

 private:
  static constexpr std::size_t kWordBits = 64;
  static constexpr std::size_t kBlockWords = 8;
  static constexpr std::size_t kBlockBits = kWordBits * kBlockWords;

  // The first bit at or after `from` whose value is `wanted`; size() if there is none.
  [[nodiscard]] std::size_t find(std::size_t from, bool wanted) const;
  // True if no bit of the block has the value `wanted`.
  [[nodiscard]] bool block_lacks(std::size_t block, bool wanted) const;

  std::vector<std::uint64_t> words_;
  std::vector<std::uint16_t> block_counts_;
  std::size_t size_ = 0;
  std::size_t count_ = 0;
};

}  // namespace thalweg
