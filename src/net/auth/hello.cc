#include "net/auth/hello.h"

#include <algorithm>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::net {
namespace {

constexpr std::uint32_t kHelloMagic = 0x47574c54;  // "TLWG"

bool printable(char c) { return c >= 0x20 && c < 0x7f; }

}  // namespace

std::array<std::byte, kHelloSize> encode_hello(const Hello& hello) {
  CHECK(hello.keyed || hello.session == 0);
  CHECK(hello.paths >= 1 && hello.paths <= kMaxPaths, "{} paths", hello.paths);
  CHECK(hello.name.size() <= kMaxPeerName, "a name of {} bytes", hello.name.size());
  std::array<std::byte, kHelloSize> bytes{};
  wire::ByteWriter writer(bytes);
  writer.put(kHelloMagic);
  writer.put(wire::kWireVersion);
  writer.put(static_cast<std::uint8_t>(hello.status));
  writer.put(hello.udp_port);
  writer.put(hello.job);
  writer.put(hello.payload);
  writer.put(std::uint8_t{hello.keyed});
  writer.put(static_cast<std::uint8_t>(hello.paths - 1));
  writer.put(std::uint16_t{0});
  writer.put(hello.session);
  writer.put(static_cast<std::uint8_t>(hello.name.size()));
  writer.put_text(hello.name);
  return bytes;
}

wire::WireError decode_hello(std::span<const std::byte, kHelloSize> bytes, Hello& out) {
  wire::ByteReader reader(bytes);
  if (reader.get<std::uint32_t>() != kHelloMagic) return wire::WireError::kKind;
  if (reader.get<std::uint8_t>() != wire::kWireVersion) return wire::WireError::kVersion;
  const auto status = reader.get<std::uint8_t>();
  out.udp_port = reader.get<std::uint16_t>();
  out.job = reader.get<std::uint64_t>();
  out.payload = reader.get<std::uint32_t>();
  const auto keyed = reader.get<std::uint8_t>();
  const auto further_paths = reader.get<std::uint8_t>();
  const auto reserved = reader.get<std::uint16_t>();
  out.session = reader.get<std::uint64_t>();
  if (keyed > 1 || reserved != 0) return wire::WireError::kReserved;
  out.keyed = keyed == 1;
  if (further_paths >= kMaxPaths) return wire::WireError::kField;
  out.paths = static_cast<std::uint8_t>(further_paths + 1);
  if (!out.keyed && out.session != 0) return wire::WireError::kReserved;
  const auto length = reader.get<std::uint8_t>();
  if (status >= kHelloStatusCount) return wire::WireError::kField;
  if (length > kMaxPeerName) return wire::WireError::kLength;
  out.status = static_cast<HelloStatus>(status);
  out.name = reader.get_text(length);
  if (std::ranges::any_of(bytes.subspan(kHelloSize - reader.left()),
                          [](std::byte b) { return b != std::byte{0}; })) {
    return wire::WireError::kReserved;
  }
  if (!std::ranges::all_of(out.name, printable)) return wire::WireError::kField;
  constexpr int kMostPort = 65'535;
  if (out.status == HelloStatus::kHello &&
      (out.udp_port == 0 || out.udp_port + further_paths > kMostPort)) {
    return wire::WireError::kField;
  }
  return wire::WireError::kNone;
}

const char* describe(HelloStatus status) {
  switch (status) {
    case HelloStatus::kHello:
      return "it does not refuse";
    case HelloStatus::kWrongToken:
      return "the job token is not the one it holds";
    case HelloStatus::kWrongVersion:
      return "it speaks another version of the protocol";
    case HelloStatus::kNoRoom:
      return "it takes no more peers";
    case HelloStatus::kKeyless:
      return "wrong key: we hold a job key, and it holds none";
    case HelloStatus::kKeyNeeded:
      return "wrong key: it holds a job key, and we hold none";
  }
  return "?";
}

const char* describe_refused(HelloStatus status) {
  switch (status) {
    case HelloStatus::kHello:
      return "it is not refused";
    case HelloStatus::kWrongToken:
      return "the job token is not the one we hold";
    case HelloStatus::kWrongVersion:
      return "it speaks another version of the protocol";
    case HelloStatus::kNoRoom:
      return "there is no room for more peers";
    case HelloStatus::kKeyless:
      return "wrong key: it holds a job key, and we hold none";
    case HelloStatus::kKeyNeeded:
      return "wrong key: we hold a job key, and it holds none";
  }
  return "?";
}

}  // namespace thalweg::net
