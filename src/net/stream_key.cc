#include "net/stream_key.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "net/address.h"
#include "net/bootstrap/environment.h"
#include "net/system.h"
#include "net/tcp.h"
#include "wire/byte_io.h"
#include "wire/frame.h"

namespace thalweg {
namespace {

// Who proves: other numbers than the roles of net/key_exchange.h, so that no proof serves both.
constexpr std::uint32_t kConnected = 0x100;
constexpr std::uint32_t kAccepted = 0x101;

constexpr int kHex = 16;

}  // namespace

SessionProof StreamKey::prove(bool connected, std::uint64_t session,
                              std::uint64_t challenge) const {
  std::array<std::byte, 2 * sizeof(std::uint64_t)> first;
  ByteWriter writer(first);
  writer.put(signature_);
  writer.put(session);
  std::array<std::byte, sizeof(std::uint64_t)> second;
  ByteWriter(second).put(challenge);
  return prove_session(key_, connected ? kConnected : kAccepted, first, second);
}

StreamKey::Opening StreamKey::open(std::uint64_t their_challenge, std::uint64_t session) const {
  Opening opening;
  const SessionProof own = prove(true, session, their_challenge);
  ByteWriter(std::span(opening.bytes).first<sizeof(session)>()).put(session);
  std::ranges::copy(own, opening.bytes.begin() + sizeof(session));
  opening.answer = prove(false, session, their_challenge);
  return opening;
}

std::optional<SessionProof> StreamKey::admit(std::span<const std::byte, kOpeningSize> opening) {
  const auto session = ByteReader(opening.first<sizeof(std::uint64_t)>()).get<std::uint64_t>();
  const SessionProof wanted = prove(true, session, challenge_);
  if (!same_secret(opening.subspan<sizeof(std::uint64_t)>(), wanted)) return std::nullopt;
  if (!admitted_.insert(session).second) return std::nullopt;
  return prove(false, session, challenge_);
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
    return Error(fmt::format("'{}' is no address of a rank", text));
  }
  address.challenge = challenge;
  return address;
}

Result<DialedStream> connect_stream(const std::string& address, const StreamKey* key, Time until,
                                    const StreamWay& way) {
  THALWEG_TRY(const StreamAddress parsed, StreamAddress::parse(address));
  const std::size_t pairs = std::max(parsed.host_ports.size(), way.own.size());
  if (pairs * way.each > kMaxLane + 1) {
    return Error(fmt::format("{} streams to a rank; at most {} are allowed (THALWEG_STREAMS)",
                             pairs * way.each, kMaxLane + 1));
  }
  const std::size_t pair = way.stream % pairs;
  std::string name = parsed.host_ports[pair % parsed.host_ports.size()];
  if (parsed.challenge.has_value() != (key != nullptr)) {
    return Error(fmt::format("{} holds {} job key, and this process {} (THALWEG_KEY_FILE)", name,
                             parsed.challenge ? "a" : "no", key != nullptr ? "does" : "does not"));
  }
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(name));
  const SocketAddress* const local =
      pairs > 1 && !way.own.empty() ? &way.own[pair % way.own.size()] : nullptr;
  if (local != nullptr) name += " from " + local->host();
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until, local));
  DialedStream dialed{.fd = std::move(fd), .streams = pairs * way.each};
  if (key == nullptr) return dialed;
  const StreamKey::Opening opening = key->open(*parsed.challenge, random_number());
  // It fits an empty buffer.
  if (send(dialed.fd.get(), opening.bytes.data(), opening.bytes.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(opening.bytes.size())) {
    return system_error(fmt::format("cannot greet {}", name), errno);
  }
  dialed.answer = opening.answer;
  return dialed;
}

}  // namespace thalweg
