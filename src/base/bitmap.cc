#include "base/bitmap.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace thalweg {
namespace {

std::uint64_t bit_of(std::size_t i) { return std::uint64_t{1} << (i % 64); }

}  // namespace

Bitmap::Bitmap(std::size_t size)
    : words_((size + kWordBits - 1) / kWordBits),
      block_counts_((size + kBlockBits - 1) / kBlockBits),
      size_(size) {}

bool Bitmap::test(std::size_t i) const {
  CHECK(i < size_);
  return (words_[i / kWordBits] & bit_of(i)) != 0;
}

bool Bitmap::set(std::size_t i) {
  if (test(i)) return false;
  words_[i / kWordBits] |= bit_of(i);
  ++block_counts_[i / kBlockBits];
  ++count_;
  return true;
}

bool Bitmap::clear(std::size_t i) {
  if (!test(i)) return false;
  words_[i / kWordBits] &= ~bit_of(i);
  --block_counts_[i / kBlockBits];
  --count_;
  return true;
}

void Bitmap::clear_all() {
  std::fill(words_.begin(), words_.end(), 0);
  std::fill(block_counts_.begin(), block_counts_.end(), 0);
  count_ = 0;
}

std::size_t Bitmap::rank(std::size_t i) const {
  CHECK(i <= size_);
  const std::size_t block = i / kBlockBits;
  std::size_t result = 0;
  for (std::size_t b = 0; b < block; ++b) result += block_counts_[b];
  for (std::size_t w = block * kBlockWords; w < i / kWordBits; ++w) {
    result += static_cast<std::size_t>(std::popcount(words_[w]));
  }
  if (i % kWordBits != 0) {
    const std::uint64_t below = words_[i / kWordBits] & (bit_of(i) - 1);
    result += static_cast<std::size_t>(std::popcount(below));
  }
  return result;
}

bool Bitmap::block_lacks(std::size_t block, bool wanted) const {
  const std::size_t bits = std::min(kBlockBits, size_ - block * kBlockBits);
  return block_counts_[block] == (wanted ? 0 : bits);
}

std::size_t Bitmap::find(std::size_t from, bool wanted) const {
  std::size_t i = from;
  while (i < size_) {
    if (i % kBlockBits == 0 && block_lacks(i / kBlockBits, wanted)) {
      i += kBlockBits;
      continue;
    }
    const std::uint64_t word = words_[i / kWordBits];
    const std::uint64_t candidates = (wanted ? word : ~word) >> (i % kWordBits);
    if (candidates != 0) {
      return std::min(size_, i + static_cast<std::size_t>(std::countr_zero(candidates)));
    }
    i = (i / kWordBits + 1) * kWordBits;
  }
  return size_;
}

std::size_t Bitmap::next_missing(std::size_t from) const { return find(from, false); }

Bitmap::Run Bitmap::missing_run(std::size_t from) const {
  const std::size_t begin = find(from, false);
  return {begin, find(begin, true)};
}

}  // namespace thalweg
