#include "net/auth/stream_key.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/environment.h"
#include "wire/byte_io.h"
#include "wire/frame.h"

namespace thalweg::net {
namespace {

// The roles of a prover. They differ from those of net/auth/key_exchange.h, so that no proof is
// valid in both protocols.
constexpr std::uint32_t kConnected = 0x100;
constexpr std::uint32_t kAccepted = 0x101;
// The same for streams that are sealed.
constexpr std::uint32_t kConnectedSealed = 0x102;
constexpr std::uint32_t kAcceptedSealed = 0x103;
// These prove nothing: they name the secret of what the end that connected sends, and of what the
// other end sends.
constexpr std::uint32_t kSecretOfConnected = 0x104;
constexpr std::uint32_t kSecretOfAccepted = 0x105;

constexpr int kHex = 16;

}  // namespace

wire::SessionProof StreamKey::derive(std::uint32_t role, std::uint64_t session,
                                     std::uint64_t challenge) const {
  std::array<std::byte, 2 * sizeof(std::uint64_t)> first;
  wire::ByteWriter writer(first);
  writer.put(signature_);
  writer.put(session);
  std::array<std::byte, sizeof(std::uint64_t)> second;
  wire::ByteWriter(second).put(challenge);
  return wire::prove_session(key_, role, first, second);
}

StreamSecrets StreamKey::secrets(bool connected, std::uint64_t session,
                                 std::uint64_t challenge) const {
  static_assert(wire::kStreamSecretSize == wire::kSessionProofSize);
  const std::uint32_t out = connected ? kSecretOfConnected : kSecretOfAccepted;
  const std::uint32_t in = connected ? kSecretOfAccepted : kSecretOfConnected;
  return {derive(out, session, challenge), derive(in, session, challenge)};
}

StreamKey::Opening StreamKey::open(std::uint64_t their_challenge, std::uint64_t session) const {
  Opening opening;
  const wire::SessionProof own =
      derive(seals_ ? kConnectedSealed : kConnected, session, their_challenge);
  wire::ByteWriter(std::span(opening.bytes).first<sizeof(session)>()).put(session);
  std::ranges::copy(own, opening.bytes.begin() + sizeof(session));
  opening.answer = derive(seals_ ? kAcceptedSealed : kAccepted, session, their_challenge);
  if (seals_) opening.secrets = secrets(true, session, their_challenge);
  return opening;
}

std::optional<StreamKey::Admission> StreamKey::admit(
    std::span<const std::byte, kOpeningSize> opening) {
  const auto session =
      wire::ByteReader(opening.first<sizeof(std::uint64_t)>()).get<std::uint64_t>();
  const auto is_from = [&](std::uint32_t role) {
    return wire::same_secret(opening.subspan<sizeof(std::uint64_t)>(),
                             derive(role, session, challenge_));
  };
  const bool sealed = is_from(kConnectedSealed);
  if (!sealed && !is_from(kConnected)) return std::nullopt;
  if (!admitted_.insert(session).second) return std::nullopt;
  Admission admission{.answer = derive(sealed ? kAcceptedSealed : kAccepted, session, challenge_)};
  if (sealed) admission.secrets = secrets(false, session, challenge_);
  return admission;
}

std::string StreamKey::address(const std::string& host_ports) const {
  return fmt::format("{} {:x}", host_ports, challenge_);
}

Result<StreamAddress> StreamAddress::parse(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  StreamAddress address;
  for (std::size_t at = 0; at <= space;) {
    const std::size_t comma = std::min(text.find(',', at), space);
    address.host_ports.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  if (address.host_ports.size() > kMaxInterfaces) {
    return Error(fmt::format("'{}' has {} addresses; at most {} are allowed", text,
                             address.host_ports.size(), kMaxInterfaces));
  }
  if (space == text.size()) return address;
  std::uint64_t challenge = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + space + 1, end, challenge, kHex);
  if (error != std::errc() || at != end) {
    return Error(ErrorCode::kInternal, fmt::format("'{}' is no address of a rank", text));
  }
  address.challenge = challenge;
  return address;
}

Result<DialedStream> connect_stream(const std::string& address, const StreamKey* key, Time until,
                                    const StreamWay& way) {
  THALWEG_TRY(const StreamAddress parsed, StreamAddress::parse(address));
  const std::size_t pairs = std::max(parsed.host_ports.size(), way.own.size());
  if (pairs * way.each > wire::kMaxLane + 1) {
    return Error(fmt::format("{} streams to a rank; at most {} are allowed (THALWEG_STREAMS)",
                             pairs * way.each, wire::kMaxLane + 1));
  }
  const std::size_t pair = way.stream % pairs;
  std::string name = parsed.host_ports[pair % parsed.host_ports.size()];
  if (parsed.challenge.has_value() != (key != nullptr)) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} holds {} job key, and this process {} (THALWEG_KEY_FILE)", name,
                             parsed.challenge ? "a" : "no", key != nullptr ? "does" : "does not"));
  }
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(name));
  const SocketAddress* const local =
      pairs > 1 && !way.own.empty() ? &way.own[pair % way.own.size()] : nullptr;
  if (local != nullptr) name += " from " + local->host();
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until, local, way.listens));
  DialedStream dialed{.fd = std::move(fd), .streams = pairs * way.each};
  if (key == nullptr) return dialed;
  const StreamKey::Opening opening = key->open(*parsed.challenge, random_number());
  // The opening fits the socket's buffer, which is empty.
  if (send(dialed.fd.get(), opening.bytes.data(), opening.bytes.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(opening.bytes.size())) {
    return system_error(fmt::format("cannot greet {}", name), errno);
  }
  dialed.answer = opening.answer;
  dialed.secrets = opening.secrets;
  return dialed;
}

}  // namespace thalweg::net
