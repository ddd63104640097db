// A first-in-first-out ring of plain values. It grows by doubling and never shrinks, so a ring that
// has reached its working size allocates no more.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace thalweg::switches {

template <class T>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Requires a ring that is not empty.
  [[nodiscard]] const T& front() const { return items_[head_]; }
  // The i-th from the front. Requires i < size().
  [[nodiscard]] const T& at(std::uint32_t i) const { return items_[(head_ + i) & (capacity_ - 1)]; }
  [[nodiscard]] T& at(std::uint32_t i) { return items_[(head_ + i) & (capacity_ - 1)]; }

  void push(const T& item) {
    if (size_ == capacity_) grow();
    items_[(head_ + size_) & (capacity_ - 1)] = item;
    ++size_;
  }
  // Requires a ring that is not empty.
  void pop() {
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  static constexpr std::uint32_t kFirstCapacity = 8;

  void grow() {
    const std::uint32_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    auto items = std::make_unique<T[]>(capacity);
    for (std::uint32_t i = 0; i < size_; ++i) items[i] = at(i);
    items_ = std::move(items);
    capacity_ = capacity;
    head_ = 0;
  }

  std::unique_ptr<T[]> items_;
  std::uint32_t capacity_ = 0;  // 0 or a power of two
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace thalweg::switches
