// How two ranks show each other that they hold the job key when a stream between them begins.
// Neither waits for it: what each says comes before its frames, and is checked before those of the
// other are.
//
//   connected                                    accepted
//   opening: session, proof ───────────────────▶  a wrong one: closed
//   frames                  ◀───────────────────  answer: proof over both; a wrong one: broken off
//                                                 frames
//
// The challenge is a number that a rank draws for each communicator and makes known with its
// address; the session one that the connecting rank draws for each stream. The proofs are over
// both, the communicator and who proves, so they are worth nothing elsewhere; no session is
// admitted twice, so a recorded opening opens nothing. What follows on the stream is neither hidden
// nor authenticated.
//
// The store does the same; its challenge is in its hello, one for each client, and the job's token
// in place of the communicator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/fd.h"
#include "wire/authenticate.h"

namespace thalweg {

// A stream that was connected, and what its other end must say first.
struct DialedStream {
  Fd fd;
  std::optional<SessionProof> answer = {};
  std::size_t streams = 1;  // that the two ranks are to have, this one included
};

class StreamKey {
 public:
  static constexpr std::size_t kOpeningSize = sizeof(std::uint64_t) + kSessionProofSize;
  using OpeningBytes = std::array<std::byte, kOpeningSize>;

  // `signature`: what both ends agree on besides the key, of job and group.
  StreamKey(const JobKey& key, std::uint64_t signature, std::uint64_t challenge)
      : key_(key), signature_(signature), challenge_(challenge) {}

  struct Opening {
    OpeningBytes bytes;
    SessionProof answer;  // what the other end must say
  };
  [[nodiscard]] Opening open(std::uint64_t their_challenge, std::uint64_t session) const;
  // What we must say. None: the other end does not hold the key, or repeats what another said. For
  // one thread.
  [[nodiscard]] std::optional<SessionProof> admit(std::span<const std::byte, kOpeningSize> opening);

  // Addresses with our challenge, as ranks make them known.
  [[nodiscard]] std::string address(const std::string& host_ports) const;

 private:
  [[nodiscard]] SessionProof prove(bool connected, std::uint64_t session,
                                   std::uint64_t challenge) const;
  JobKey key_;
  std::uint64_t signature_;
  std::uint64_t challenge_;
  std::set<std::uint64_t> admitted_;  // sessions; only who holds the key adds one
};

// What a rank has made known: "host:port", one for each of its interfaces with commas between, and
// behind a space its challenge.
struct StreamAddress {
  std::vector<std::string> host_ports;          // at least one
  std::optional<std::uint64_t> challenge = {};  // none: that rank holds no job key
  [[nodiscard]] static Result<StreamAddress> parse(const std::string& text);
};

// Which of the streams between two ranks it is to be. There are `each` for every pair of
// interfaces; the i-th of the rank with more goes with the i-th, counted round, of the other.
struct StreamWay {
  std::span<const SocketAddress> own = {};  // of our interfaces, port 0; none: any
  std::size_t each = 1;
  std::size_t stream = 0;
};

// A stream to that rank, with what it begins with. Both ends hold the job key or neither does;
// `key` is null if we do not.
[[nodiscard]] Result<DialedStream> connect_stream(const std::string& address, const StreamKey* key,
                                                  Time until, const StreamWay& way = {});

}  // namespace thalweg
