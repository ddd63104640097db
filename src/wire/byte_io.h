// Write and read little-endian fields in a span of bytes, in order.
//
// Neither class ever touches a byte outside its span: a write or read that does not fit does
// nothing and clears ok(), which the caller checks once, at the end.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace thalweg::wire {

// Headers are written and read once per packet, so fields are copied whole for speed.
static_assert(std::endian::native == std::endian::little, "fields would need their bytes turned");

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}

  template <std::unsigned_integral T>
  void put(T value) {
    if (!room(sizeof(T))) return;
    std::memcpy(&out_[used_], &value, sizeof(T));
    used_ += sizeof(T);
  }
  void put_text(std::string_view text) {
    if (text.empty() || !room(text.size())) return;
    std::memcpy(&out_[used_], text.data(), text.size());
    used_ += text.size();
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  bool room(std::size_t size) { return ok_ = ok_ && size <= out_.size() - used_; }

  std::span<std::byte> out_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  // Returns 0 when too few bytes are left.
  template <std::unsigned_integral T>
  T get() {
    if (!left_over(sizeof(T))) return 0;
    T value = 0;
    std::memcpy(&value, &in_[used_], sizeof(T));
    used_ += sizeof(T);
    return value;
  }
  std::string get_text(std::size_t size) {
    if (size == 0 || !left_over(size)) return {};
    std::string text(size, '\0');
    std::memcpy(text.data(), &in_[used_], size);
    used_ += size;
    return text;
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return in_.size() - used_; }

 private:
  bool left_over(std::size_t size) { return ok_ = ok_ && size <= left(); }

  std::span<const std::byte> in_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

}  // namespace thalweg::wire
