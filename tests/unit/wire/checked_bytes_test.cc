#include "wire/checked_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "wire/checksum.h"

namespace thalweg::wire {
namespace {

std::vector<std::byte> counted_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(CheckedBytes, take__what_was_put_in_pieces_of_any_size) {
  for (const std::size_t size : {std::size_t{1}, kMaxCheckedBytes, 3 * kMaxCheckedBytes + 5}) {
    const std::vector<std::byte> plain = counted_bytes(size);
    std::vector<std::byte> sent;
    put_checked_bytes(plain, sent);
    for (const std::size_t step : {std::size_t{1000}, sent.size()}) {
      std::vector<std::byte> waiting;
      std::vector<std::byte> taken;
      for (std::size_t at = 0; at < sent.size(); at += step) {
        const auto piece = std::span(sent).subspan(at, std::min(step, sent.size() - at));
        waiting.insert(waiting.end(), piece.begin(), piece.end());
        std::span<const std::byte> left(waiting);
        const WireError error = take_checked_bytes(left, taken);
        ASSERT_TRUE(error == WireError::kNone || error == WireError::kShort);
        waiting.erase(waiting.begin(), waiting.end() - static_cast<std::ptrdiff_t>(left.size()));
      }
      EXPECT_EQ(taken, plain);
      EXPECT_TRUE(waiting.empty());
    }
  }
}

TEST(CheckedBytes, take__any_byte_that_changed_is_found) {
  const std::vector<std::byte> plain = counted_bytes(300);
  std::vector<std::byte> sent;
  put_checked_bytes(plain, sent);
  for (std::size_t at = 0; at < sent.size(); ++at) {
    std::vector<std::byte> broken = sent;
    broken[at] ^= std::byte{0x20};
    std::span<const std::byte> left(broken);
    std::vector<std::byte> taken;
    EXPECT_EQ(take_checked_bytes(left, taken), WireError::kChecksum) << at;
    EXPECT_TRUE(taken.empty()) << at;
  }
}

TEST(CheckedBytes, take__a_length_that_nobody_sends_is_refused) {
  for (const unsigned size : {0U, static_cast<unsigned>(kMaxCheckedBytes) + 1}) {
    std::vector<std::byte> head(12);
    for (std::size_t i = 0; i < 4; ++i) head[i] = static_cast<std::byte>(size >> (8 * i));
    put_header_checks(head, 0);
    std::span<const std::byte> left(head);
    std::vector<std::byte> taken;
    EXPECT_EQ(take_checked_bytes(left, taken), WireError::kLength) << size;
  }
}

}  // namespace
}  // namespace thalweg::wire
