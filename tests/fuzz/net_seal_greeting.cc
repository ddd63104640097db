// What arrives at a server that may hold a key, from strangers and from a client whose bytes change
// on the way: only what that client said, from its beginning, ever reaches the server's protocol,
// however the bytes are cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "net/auth/greeting.h"

namespace {

using namespace thalweg;
using namespace thalweg::net;

using Buffer = std::vector<std::byte>;

constexpr std::uint64_t kChallenge = 7;

// Gives the bytes to the server in pieces of at most `step`, and returns what its protocol gets.
Buffer heard(KeyedStream& server, std::span<const std::byte> bytes, std::size_t step) {
  Buffer plain;
  Buffer out;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(step, bytes.size()));
    bytes = bytes.subspan(part.size());
    const bool was_over = server.over();
    const std::size_t before = plain.size();
    const auto state = server.on_received(part, plain, out);
    CHECK(state == server.state());
    if (was_over) CHECK(server.over() && plain.size() == before);
  }
  CHECK(out.size() <= kGreetingAnswerSize + kVerdictSize);
  return plain;
}

// All that a client with the key sends: greeting, opening, and `said` sealed.
Buffer sent_by_client(const wire::JobKey& key, const Buffer& said) {
  Buffer all(kGreetingSize);
  const std::string magic = "TLWK\x01";
  std::ranges::copy(std::as_bytes(std::span(magic)), all.begin());
  const StreamKey::Opening opening = StreamKey(key, 0, 0, true).open(kChallenge, 9);
  all.insert(all.end(), opening.bytes.begin(), opening.bytes.end());
  wire::BytesSealer sealer(opening.secrets->out);
  sealer.seal(said, all);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  const std::size_t step = 1 + data[0] % 64;
  const std::size_t at = data[1];
  const std::span<const std::byte> rest = input.subspan(3);
  const wire::JobKey key = wire::JobKey::from_hex(std::string(32, 'a')).value();

  // Strangers: without a key only a greeting is kept from the protocol; with one, everything is.
  KeyedStream keyless(std::nullopt, kChallenge);
  const Buffer passed = heard(keyless, rest, step);
  if (keyless.state() == KeyedStream::State::kPlain) CHECK(std::ranges::equal(passed, rest));
  if (keyless.state() != KeyedStream::State::kPlain) CHECK(passed.empty());
  KeyedStream keyed(key, kChallenge);
  CHECK(heard(keyed, rest, step).empty());

  // A client whose bytes change in one place.
  const Buffer said(100, std::byte{0x5a});
  Buffer bytes = sent_by_client(key, said);
  bytes[at % bytes.size()] ^= static_cast<std::byte>(data[2]);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  KeyedStream server(key, kChallenge);
  const Buffer plain = heard(server, bytes, step);
  CHECK(plain.empty() || plain == said);
  if (data[2] == 0) CHECK(plain == said);
  return 0;
}
