// Sorts the items 0 … count−1 into buckets by counting; items keep their order within a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thalweg::plan {

class Buckets {
 public:
  template <class BucketOf>
  Buckets(std::size_t count, std::size_t buckets, BucketOf bucket_of)
      : begin_(buckets + 1, 0), items_(count) {
    for (std::uint32_t i = 0; i < count; ++i) ++begin_[bucket_of(i) + 1];
    for (std::size_t b = 0; b < buckets; ++b) begin_[b + 1] += begin_[b];
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (std::uint32_t i = 0; i < count; ++i) items_[next[bucket_of(i)]++] = i;
  }

  [[nodiscard]] std::size_t size() const { return begin_.size() - 1; }
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t bucket) const {
    return {items_.data() + begin_[bucket], items_.data() + begin_[bucket + 1]};
  }
  // The caller may put a bucket's items into another order.
  [[nodiscard]] std::span<std::uint32_t> operator[](std::size_t bucket) {
    return {items_.data() + begin_[bucket], items_.data() + begin_[bucket + 1]};
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> items_;
};

}  // namespace thalweg::plan
