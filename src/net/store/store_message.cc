#include "net/store/store_message.h"

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::net {
namespace {

constexpr std::uint32_t kStoreMagic = 0x53574c54;  // "TLWS"
constexpr std::uint8_t kStoreVersion = 2;
constexpr std::size_t kLengthSize = 4;
constexpr std::size_t kRequestHeader = 32;
constexpr std::size_t kReplyHeader = 16;
constexpr std::size_t kMaxRequest = kRequestHeader + kMaxStoreKey + 2 * kMaxStoreValue;
constexpr std::size_t kMaxReply = kReplyHeader + kMaxStoreValue;

using What = StoreRequest::What;

// Makes room for a message of `size` bytes at the end of `out` and writes its length field.
wire::ByteWriter append(std::vector<std::byte>& out, std::size_t size) {
  out.resize(out.size() + size);
  wire::ByteWriter writer(std::span<std::byte>(out).last(size));
  writer.put(static_cast<std::uint32_t>(size - kLengthSize));
  return writer;
}

// Finds the message at the front of `bytes` by its length field.
wire::WireError frame(std::span<const std::byte> bytes, std::size_t least, std::size_t most,
                      std::span<const std::byte>& out) {
  if (bytes.size() < kLengthSize) return wire::WireError::kShort;
  const std::size_t size = kLengthSize + wire::ByteReader(bytes).get<std::uint32_t>();
  if (size < least || size > most) return wire::WireError::kLength;
  if (bytes.size() < size) return wire::WireError::kShort;
  out = bytes.first(size);
  return wire::WireError::kNone;
}

// Whether the fields that this request does not use are 0.
bool fields_fit(const StoreRequest& r) {
  const bool waits = r.what == What::kGet || r.what == What::kWait;
  const bool puts = r.what == What::kSet || r.what == What::kCompareAndSet;
  return (waits || r.wait_ms == 0) && (puts || r.value.empty()) &&
         (r.what == What::kAdd || r.delta == 0) &&
         (r.what == What::kCompareAndSet || !r.expected.has_value());
}

}  // namespace

std::array<std::byte, kStoreHelloSize> encode_store_hello(const StoreHello& hello) {
  std::array<std::byte, kStoreHelloSize> bytes{};
  wire::ByteWriter writer(bytes);
  writer.put(kStoreMagic);
  writer.put(kStoreVersion);
  writer.put(static_cast<std::uint8_t>(hello.status));
  writer.put(static_cast<std::uint8_t>(hello.keyed));
  writer.put(static_cast<std::uint8_t>(hello.checks));
  writer.put(hello.token);
  return bytes;
}

wire::WireError decode_store_hello(std::span<const std::byte, kStoreHelloSize> bytes,
                                   StoreHello& out) {
  wire::ByteReader reader(bytes);
  if (reader.get<std::uint32_t>() != kStoreMagic) return wire::WireError::kKind;
  if (reader.get<std::uint8_t>() != kStoreVersion) return wire::WireError::kVersion;
  const auto status = reader.get<std::uint8_t>();
  if (status >= kHelloStatusCount) return wire::WireError::kField;
  const auto keyed = reader.get<std::uint8_t>();
  const auto checks = reader.get<std::uint8_t>();
  if (keyed > 1 || checks > 1) return wire::WireError::kReserved;
  if (keyed == 1 && checks == 1) return wire::WireError::kField;
  out.status = static_cast<HelloStatus>(status);
  out.keyed = keyed == 1;
  out.checks = checks == 1;
  out.token = reader.get<std::uint64_t>();
  return wire::WireError::kNone;
}

void encode_store(const StoreRequest& request, std::vector<std::byte>& out) {
  const std::string expected = request.expected.value_or("");
  CHECK(!request.key.empty() && request.key.size() <= kMaxStoreKey);
  CHECK(request.value.size() <= kMaxStoreValue && expected.size() <= kMaxStoreValue);
  CHECK(fields_fit(request));
  wire::ByteWriter writer =
      append(out, kRequestHeader + request.key.size() + request.value.size() + expected.size());
  writer.put(static_cast<std::uint8_t>(request.what));
  writer.put(static_cast<std::uint8_t>(request.expected.has_value()));
  writer.put(static_cast<std::uint16_t>(request.key.size()));
  writer.put(request.number);
  writer.put(request.wait_ms);
  writer.put(static_cast<std::uint32_t>(request.value.size()));
  writer.put(static_cast<std::uint32_t>(expected.size()));
  writer.put(static_cast<std::uint64_t>(request.delta));
  writer.put_text(request.key);
  writer.put_text(request.value);
  writer.put_text(expected);
  CHECK(writer.ok());
}

void encode_store(const StoreReply& reply, std::vector<std::byte>& out) {
  CHECK(reply.value.size() <= kMaxStoreValue);
  wire::ByteWriter writer = append(out, kReplyHeader + reply.value.size());
  writer.put(static_cast<std::uint8_t>(reply.outcome));
  writer.put(std::uint8_t{0});
  writer.put(std::uint16_t{0});
  writer.put(reply.number);
  writer.put(static_cast<std::uint32_t>(reply.value.size()));
  writer.put_text(reply.value);
  CHECK(writer.ok());
}

wire::WireError take_store(std::span<const std::byte>& bytes, StoreRequest& out) {
  std::span<const std::byte> message;
  if (const auto error = frame(bytes, kRequestHeader + 1, kMaxRequest, message);
      error != wire::WireError::kNone) {
    return error;
  }
  wire::ByteReader reader(message.subspan(kLengthSize));
  const auto what = reader.get<std::uint8_t>();
  const auto flags = reader.get<std::uint8_t>();
  const auto key = reader.get<std::uint16_t>();
  out.number = reader.get<std::uint32_t>();
  out.wait_ms = reader.get<std::uint32_t>();
  const auto value = reader.get<std::uint32_t>();
  const auto expected = reader.get<std::uint32_t>();
  out.delta = static_cast<std::int64_t>(reader.get<std::uint64_t>());
  if (what >= StoreRequest::kWhatCount) return wire::WireError::kKind;
  if (flags > 1) return wire::WireError::kReserved;
  if (key == 0 || key > kMaxStoreKey || value > kMaxStoreValue || expected > kMaxStoreValue ||
      std::size_t{key} + value + expected != reader.left() || (flags == 0 && expected != 0)) {
    return wire::WireError::kLength;
  }
  out.what = static_cast<What>(what);
  out.key = reader.get_text(key);
  out.value = reader.get_text(value);
  out.expected.reset();
  if (flags == 1) out.expected = reader.get_text(expected);
  if (!fields_fit(out)) return wire::WireError::kField;
  bytes = bytes.subspan(message.size());
  return wire::WireError::kNone;
}

wire::WireError take_store(std::span<const std::byte>& bytes, StoreReply& out) {
  std::span<const std::byte> message;
  if (const auto error = frame(bytes, kReplyHeader, kMaxReply, message);
      error != wire::WireError::kNone) {
    return error;
  }
  wire::ByteReader reader(message.subspan(kLengthSize));
  const auto outcome = reader.get<std::uint8_t>();
  const bool zeros = reader.get<std::uint8_t>() == 0 && reader.get<std::uint16_t>() == 0;
  out.number = reader.get<std::uint32_t>();
  const auto value = reader.get<std::uint32_t>();
  if (outcome >= StoreReply::kOutcomeCount) return wire::WireError::kField;
  if (!zeros) return wire::WireError::kReserved;
  if (value != reader.left()) return wire::WireError::kLength;
  out.outcome = static_cast<StoreReply::Outcome>(outcome);
  out.value = reader.get_text(value);
  bytes = bytes.subspan(message.size());
  return wire::WireError::kNone;
}

}  // namespace thalweg::net
