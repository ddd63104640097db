// Reads the bytes of a fuzzer as a series of choices; zeros when they have run out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return used_ == size_; }
  std::uint8_t byte() { return empty() ? 0 : data_[used_++]; }
  std::uint32_t word() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = (value << 8) | byte();
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t used_ = 0;
};

}  // namespace thalweg
