#include "nccl/greeting.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "wire/byte_io.h"

namespace thalweg::nccl {
namespace {

constexpr std::uint64_t mark_of(const char (&text)[9]) {
  std::uint64_t mark = 0;
  for (int i = 7; i >= 0; --i) mark = mark << 8 | static_cast<unsigned char>(text[i]);
  return mark;
}
constexpr std::uint64_t kHandleMark = mark_of("THALWEGN");
constexpr std::uint64_t kHelloMark = mark_of("THALWEGS");
constexpr std::uint64_t kAnswerMark = mark_of("THALWEGA");
constexpr std::uint32_t kPieceMark = 0x504e5754;  // "TWNP"
constexpr std::uint8_t kIpv4 = 4;
constexpr std::uint8_t kIpv6 = 6;
constexpr std::size_t kAddressSize = 16;

void put_prefix(wire::ByteWriter& writer, std::uint64_t mark) {
  writer.put(mark);
  writer.put(kGreetingVersion);
}

std::optional<GreetingError> check_prefix(wire::ByteReader& reader, std::uint64_t mark) {
  if (reader.get<std::uint64_t>() != mark) return GreetingError::kForeign;
  if (reader.get<std::uint16_t>() != kGreetingVersion) return GreetingError::kVersion;
  return std::nullopt;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

template <std::size_t kSize>
void put_bytes(wire::ByteWriter& writer, const std::array<std::byte, kSize>& bytes) {
  writer.put_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

HandleBytes encode_handle(const Handle& handle) {
  HandleBytes bytes = {};
  std::array<std::byte, kAddressSize> address = {};
  const bool v4 = handle.address.family() == AF_INET;
  if (v4) {
    const auto* from = reinterpret_cast<const sockaddr_in*>(handle.address.get());
    std::memcpy(address.data(), &from->sin_addr, sizeof(from->sin_addr));
  } else {
    const auto* from = reinterpret_cast<const sockaddr_in6*>(handle.address.get());
    std::memcpy(address.data(), &from->sin6_addr, sizeof(from->sin6_addr));
  }
  wire::ByteWriter writer(bytes);
  put_prefix(writer, kHandleMark);
  writer.put(v4 ? kIpv4 : kIpv6);
  writer.put(static_cast<std::uint8_t>(handle.keyed));
  writer.put(handle.address.port());
  writer.put(std::uint16_t{0});
  put_bytes(writer, address);
  writer.put(handle.challenge);
  writer.put(handle.attempt);
  return bytes;
}

std::variant<Handle, GreetingError> decode_handle(
    std::span<const std::byte, kNcclHandleSize> bytes) {
  wire::ByteReader reader(bytes);
  if (const auto error = check_prefix(reader, kHandleMark)) return *error;
  const auto family = reader.get<std::uint8_t>();
  const auto keyed = reader.get<std::uint8_t>();
  const auto port = reader.get<std::uint16_t>();
  const auto zero = reader.get<std::uint16_t>();
  const std::string address = reader.get_text(kAddressSize);
  Handle handle;
  handle.keyed = keyed == 1;
  handle.challenge = reader.get<std::uint64_t>();
  handle.attempt = reader.get<std::uint64_t>();
  const std::span tail = bytes.last(reader.left());
  if ((family != kIpv4 && family != kIpv6) || keyed > 1 || port == 0 || zero != 0 ||
      !all_zero(tail)) {
    return GreetingError::kForeign;
  }
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  std::memcpy(&v4.sin_addr, address.data(), sizeof(v4.sin_addr));
  std::memcpy(&v6.sin6_addr, address.data(), sizeof(v6.sin6_addr));
  if (family == kIpv4 && !all_zero(bytes.subspan(20, 12))) return GreetingError::kForeign;
  handle.address = net::SocketAddress::from(family == kIpv4 ? reinterpret_cast<sockaddr&>(v4)
                                                            : reinterpret_cast<sockaddr&>(v6));
  handle.address.set_port(port);
  return handle;
}

StreamHelloBytes encode_hello(const StreamHello& hello) {
  StreamHelloBytes bytes = {};
  wire::ByteWriter writer(bytes);
  put_prefix(writer, kHelloMark);
  writer.put(static_cast<std::uint8_t>(hello.keyed));
  writer.put(hello.stream);
  writer.put(hello.streams);
  writer.put_text({"\0\0\0", 3});
  writer.put(hello.challenge);
  writer.put(hello.connection);
  put_bytes(writer, hello.opening);
  return bytes;
}

std::optional<GreetingError> check_hello_prefix(
    std::span<const std::byte, kGreetingPrefixSize> bytes) {
  wire::ByteReader reader(bytes);
  return check_prefix(reader, kHelloMark);
}

std::variant<StreamHello, GreetingError> decode_hello(
    std::span<const std::byte, kStreamHelloSize> bytes) {
  wire::ByteReader reader(bytes);
  if (const auto error = check_prefix(reader, kHelloMark)) return *error;
  StreamHello hello;
  const auto keyed = reader.get<std::uint8_t>();
  hello.keyed = keyed == 1;
  hello.stream = reader.get<std::uint8_t>();
  hello.streams = reader.get<std::uint8_t>();
  const std::string zeros = reader.get_text(3);
  hello.challenge = reader.get<std::uint64_t>();
  hello.connection = reader.get<std::uint64_t>();
  const std::span opening = bytes.last<net::StreamKey::kOpeningSize>();
  std::ranges::copy(opening, hello.opening.begin());
  if (keyed > 1 || hello.streams == 0 || hello.streams > kMaxStreams ||
      hello.stream >= hello.streams || zeros != std::string(3, '\0') ||
      (!hello.keyed && !all_zero(opening))) {
    return GreetingError::kForeign;
  }
  return hello;
}

StreamAnswerBytes encode_answer(const StreamAnswer& answer) {
  StreamAnswerBytes bytes = {};
  wire::ByteWriter writer(bytes);
  put_prefix(writer, kAnswerMark);
  writer.put(static_cast<std::uint8_t>(answer.status));
  writer.put_text({"\0\0\0\0\0", 5});
  put_bytes(writer, answer.proof);
  return bytes;
}

std::variant<StreamAnswer, GreetingError> decode_answer(
    std::span<const std::byte, kStreamAnswerSize> bytes) {
  wire::ByteReader reader(bytes);
  if (const auto error = check_prefix(reader, kAnswerMark)) return *error;
  const auto status = reader.get<std::uint8_t>();
  const std::string zeros = reader.get_text(5);
  if (status > static_cast<std::uint8_t>(GreetingStatus::kWrongKey) ||
      zeros != std::string(5, '\0')) {
    return GreetingError::kForeign;
  }
  StreamAnswer answer{.status = static_cast<GreetingStatus>(status)};
  std::ranges::copy(bytes.last<wire::kSessionProofSize>(), answer.proof.begin());
  return answer;
}

PieceHeader encode_piece(const Piece& piece) {
  PieceHeader bytes;
  wire::ByteWriter writer(bytes);
  writer.put(piece.message);
  writer.put(piece.size);
  writer.put(piece.offset);
  writer.put(piece.length);
  writer.put(kPieceMark);
  return bytes;
}

std::optional<Piece> decode_piece(std::span<const std::byte, kPieceHeaderSize> bytes) {
  wire::ByteReader reader(bytes);
  Piece piece;
  piece.message = reader.get<std::uint64_t>();
  piece.size = reader.get<std::uint64_t>();
  piece.offset = reader.get<std::uint64_t>();
  piece.length = reader.get<std::uint32_t>();
  if (reader.get<std::uint32_t>() != kPieceMark || piece.size > kNcclMaxMessage ||
      piece.offset > piece.size || piece.length > piece.size - piece.offset ||
      (piece.length == 0) != (piece.size == 0)) {
    return std::nullopt;
  }
  return piece;
}

}  // namespace thalweg::nccl
