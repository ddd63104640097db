// A first-in first-out queue that keeps its memory: push() and pop() allocate only when the queue
// grows longer than it ever was.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace thalweg::proto {

template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return head_ == items_.size(); }
  [[nodiscard]] std::size_t size() const { return items_.size() - head_; }

  void push(T item) {
    // Moves the items only when at least half were popped: at most one move per popped item.
    if (items_.size() == items_.capacity() && head_ > 0 && head_ >= items_.size() / 2) {
      std::move(items_.begin() + static_cast<std::ptrdiff_t>(head_), items_.end(), items_.begin());
      items_.resize(size());
      head_ = 0;
    }
    items_.push_back(std::move(item));
  }
  // Requires a queue that is not empty.
  T pop() {
    CHECK(!empty());
    T item = std::move(items_[head_]);
    if (++head_ == items_.size()) clear();
    return item;
  }
  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace thalweg::proto
