// Little-endian fields in a span of bytes, written and read in order.
//
// Neither class ever touches a byte outside its span: a write or read that does not fit moves
// nothing and clears ok(), which the caller looks at once, at the end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace thalweg {

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}

  template <std::unsigned_integral T>
  void put(T value) {
    if (!room(sizeof(T))) return;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_[used_ + i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
    }
    used_ += sizeof(T);
  }
  void put_text(std::string_view text) {
    if (!room(text.size())) return;
    for (std::size_t i = 0; i < text.size(); ++i) {
      out_[used_ + i] = static_cast<std::byte>(text[i]);
    }
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

  // 0 when the bytes have run out.
  template <std::unsigned_integral T>
  T get() {
    if (!left_over(sizeof(T))) return 0;
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(in_[used_ + i]) << (8 * i)));
    }
    used_ += sizeof(T);
    return value;
  }
  std::string get_text(std::size_t size) {
    if (!left_over(size)) return {};
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(in_[used_ + i]);
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

}  // namespace thalweg
