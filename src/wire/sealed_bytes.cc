#include "wire/sealed_bytes.h"

#include <algorithm>

#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kRecordHeadSize = sizeof(std::uint32_t);

}  // namespace

void BytesSealer::seal(std::span<const std::byte> plain, std::vector<std::byte>& out) {
  while (!plain.empty()) {
    const std::span<const std::byte> part = plain.first(std::min(plain.size(), kMaxSealedBytes));
    plain = plain.subspan(part.size());
    const std::size_t at = out.size();
    out.resize(at + kRecordHeadSize + part.size() + kKeyedTagSize);
    const std::span<std::byte> record = std::span(out).subspan(at);
    const std::span<std::byte> head = record.first(kRecordHeadSize);
    ByteWriter(head).put(static_cast<std::uint32_t>(part.size() + kKeyedTagSize));
    const KeyedTag tag =
        cipher_.seal(next_++, part, record.subspan(kRecordHeadSize, part.size()), head);
    std::ranges::copy(tag, record.last<kKeyedTagSize>().begin());
  }
}

WireError BytesOpener::open(std::span<const std::byte>& bytes, std::vector<std::byte>& plain) {
  while (!bytes.empty()) {
    if (bytes.size() < kRecordHeadSize) return WireError::kShort;
    const std::span<const std::byte> head = bytes.first(kRecordHeadSize);
    const std::size_t size = ByteReader(head).get<std::uint32_t>();
    if (size <= kKeyedTagSize || size > kMaxSealedBytes + kKeyedTagSize) return WireError::kLength;
    if (bytes.size() - kRecordHeadSize < size) return WireError::kShort;
    const std::span<const std::byte> sealed = bytes.subspan(kRecordHeadSize, size - kKeyedTagSize);
    KeyedTag tag;
    std::ranges::copy(bytes.subspan(kRecordHeadSize + sealed.size(), kKeyedTagSize), tag.begin());
    const std::size_t at = plain.size();
    plain.resize(at + sealed.size());
    cipher_.begin_open(next_++, head);
    cipher_.open_part(sealed, std::span(plain).subspan(at));
    if (!cipher_.end_open(tag)) {
      plain.resize(at);
      return WireError::kChecksum;
    }
    bytes = bytes.subspan(kRecordHeadSize + size);
  }
  return WireError::kNone;
}

}  // namespace thalweg::wire
