// How two ranks prove to each other that they hold the job key when a stream between them begins.
// Neither waits for the other: each sends its proof before its frames, and checks the other's proof
// before it reads the other's frames.
//
//   connected                                    accepted
//   opening: session, proof ───────────────────▶  closes the stream if the proof is wrong
//   closes it if wrong      ◀───────────────────  answer: proof
//   frames                  ◀──────────────────▶  frames
//
// The challenge is a number that a rank draws for each communicator and publishes with its address;
// the session is a number that the connecting rank draws for each stream. A proof covers challenge,
// session, communicator, the role of the prover and whether the stream is sealed, so it is
// worthless elsewhere. No session is admitted twice, so a recorded opening opens nothing.
//
// On a sealed stream all that follows is encrypted and authenticated (wire/record_cipher.h), with
// secrets that both ends derive from the job key and the numbers above, one for each direction. Two
// streams have the same secrets only if both numbers are drawn again; the accepting end never
// admits a session twice, and the connecting end draws a new one whatever it is told of the other.
// Whoever learns the job key later can read what he has recorded: there is no forward secrecy.
//
// The store does the same: its hello carries a challenge for each client, and the job's token takes
// the place of the communicator.
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
#include "net/io/address.h"
#include "net/io/fd.h"
#include "wire/authenticate.h"
#include "wire/record_cipher.h"

namespace thalweg::net {

// The secrets of what one end of a sealed stream sends and receives.
struct StreamSecrets {
  wire::StreamSecret out;
  wire::StreamSecret in;
};

// A stream that this process has connected.
struct DialedStream {
  Fd fd;
  // What the other end must send first; none without a key.
  std::optional<wire::SessionProof> answer = {};
  std::size_t streams = 1;  // number of streams that the two ranks will have, this one included
  std::optional<StreamSecrets> secrets = {};  // none: the stream is not sealed
};

class StreamKey {
 public:
  static constexpr std::size_t kOpeningSize = sizeof(std::uint64_t) + wire::kSessionProofSize;
  using OpeningBytes = std::array<std::byte, kOpeningSize>;

  // `signature`: what both ends agree on besides the key: a number for job and group.
  // `seals`: whether the streams that this end makes are sealed.
  StreamKey(const wire::JobKey& key, std::uint64_t signature, std::uint64_t challenge,
            bool seals = false)
      : key_(key), signature_(signature), challenge_(challenge), seals_(seals) {}
  [[nodiscard]] bool seals() const { return seals_; }

  struct Opening {
    OpeningBytes bytes;
    wire::SessionProof answer;                  // what the other end must send
    std::optional<StreamSecrets> secrets = {};  // none: the stream is not sealed
  };
  // What the connecting end sends first on a stream.
  [[nodiscard]] Opening open(std::uint64_t their_challenge, std::uint64_t session) const;
  struct Admission {
    wire::SessionProof answer;                  // what to send
    std::optional<StreamSecrets> secrets = {};  // none: the other end does not seal this stream
  };
  // Checks the opening of a stream, sealed or not. None: the other end does not hold the key, or
  // repeats an earlier opening. Not thread-safe.
  [[nodiscard]] std::optional<Admission> admit(std::span<const std::byte, kOpeningSize> opening);

  // The address that a rank publishes: `host_ports` with our challenge.
  [[nodiscard]] std::string address(const std::string& host_ports) const;

 private:
  // HMAC-SHA-256 over all numbers of a stream: a proof, or a secret that is never sent.
  [[nodiscard]] wire::SessionProof derive(std::uint32_t role, std::uint64_t session,
                                          std::uint64_t challenge) const;
  [[nodiscard]] StreamSecrets secrets(bool connected, std::uint64_t session,
                                      std::uint64_t challenge) const;
  wire::JobKey key_;
  std::uint64_t signature_;
  std::uint64_t challenge_;
  bool seals_;
  std::set<std::uint64_t> admitted_;  // sessions; only holders of the key can add one
};

// The address that a rank publishes: one "host:port" per interface, separated by commas, then a
// space and the rank's challenge.
struct StreamAddress {
  std::vector<std::string> host_ports;          // at least one
  std::optional<std::uint64_t> challenge = {};  // none: the rank holds no job key
  [[nodiscard]] static Result<StreamAddress> parse(const std::string& text);
};

// Which of the streams between two ranks to connect. Every way (pair of interfaces) has `each`
// streams. Interface i of the rank that has more interfaces is paired with interface i modulo n of
// the other, which has n.
struct StreamWay {
  // The addresses of our interfaces, with port 0. Empty: the system chooses one.
  std::span<const SocketAddress> own = {};
  std::size_t each = 1;
  std::size_t stream = 0;  // number of the stream, below `each` times the number of ways
  bool listens = false;    // the other rank listens already: a refusal is an error at once
};

// Connects a stream to the rank that published `address`, and sends the opening. `key` is null if
// this process holds no job key. It is an error if only one of the two ends holds one.
[[nodiscard]] Result<DialedStream> connect_stream(const std::string& address, const StreamKey* key,
                                                  Time until, const StreamWay& way = {});

}  // namespace thalweg::net
