// How a client and a server of Thalweg that hold a key begin a sealed stream, before the messages
// of their own protocol: the control socket of a switch, and the stream to a parameter server.
//
//   client                                           server
//   greeting: "TLWK" ──────────────────────────────▶
//                     ◀──────────────────────────── answer: "TLWK", status, challenge
//   opening: session, proof (net/auth/stream_key.h) ▶
//                     ◀──────────────────────────── verdict: status, proof
//   sealed bytes (wire/sealed_bytes.h) ◀──────────▶ sealed bytes
//
// A client without a key begins with the first message of its protocol, which never begins with
// "TLWK". Neither end ever goes on without a key if the other holds one: the server refuses such a
// client in the words of its protocol, and a server without a key answers a greeting with a
// refusal.
//
//   greeting, 8 bytes:  0  4  "TLWK"     4  1  version   5  3  0
//   answer, 16 bytes:   0  4  "TLWK"     4  1  version   5  1  GreetingStatus  6  2  0
//                       8  8  challenge, 0 in a refusal
//   verdict, 40 bytes:  0  1  GreetingStatus  1  7  0    8  32  proof, 0 in a refusal
//
// All numbers are little-endian; bytes 0 to 5 have this layout in all versions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/derived_key.h"
#include "net/auth/stream_key.h"
#include "wire/authenticate.h"
#include "wire/sealed_bytes.h"

namespace thalweg::net {

enum class GreetingStatus : std::uint8_t { kWelcome, kVersion, kKeyless, kWrongKey };

inline constexpr std::size_t kGreetingSize = 8;
inline constexpr std::size_t kGreetingAnswerSize = 16;
inline constexpr std::size_t kVerdictSize = 8 + wire::kSessionProofSize;
// A client that has not proved its key by then is closed.
inline constexpr Duration kGreetingTime = Duration::milliseconds(10'000);

// The server's end of one connection, with a key or without one. It does no I/O.
class KeyedStream {
 public:
  enum class State : std::uint8_t {
    kGreeting,   // the client has yet to say what it is, or to prove its key
    kPlain,      // neither end has a key
    kSealed,     // the client has proved its key
    kKeyNeeded,  // the client has no key and the server has: refuse it in its protocol
    kRefused,    // the client was told why, if it can be told: close it when that has been sent
  };

  // `key`: that of the purpose (derived_key()); none: the server has no key. `challenge`: a random
  // number that no other connection has.
  KeyedStream(const std::optional<wire::JobKey>& key, std::uint64_t challenge);

  // Takes the bytes that arrived. Appends to `plain` what they hold for the protocol, and to `out`
  // what must be sent at once. In the last two states bytes are dropped.
  State on_received(std::span<const std::byte> bytes, std::vector<std::byte>& plain,
                    std::vector<std::byte>& out);
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool over() const {
    return state_ == State::kKeyNeeded || state_ == State::kRefused;
  }
  // Appends to `out` what is sent for `plain`.
  void put(std::span<const std::byte> plain, std::vector<std::byte>& out);

 private:
  void greet(std::vector<std::byte>& out);
  void check_key(std::vector<std::byte>& out);

  State state_ = State::kGreeting;
  bool answered_ = false;         // the challenge was sent
  std::optional<StreamKey> key_;  // none: the server has no key
  std::uint64_t challenge_;
  std::vector<std::byte> in_;  // bytes that were not taken yet
  std::unique_ptr<wire::BytesSeal> seal_;
};

// The client's end: greets, proves `key` (derived_key()) and checks the server's proof. `fd` must
// not block. `name` is what errors call the server. `hint` says what the user can do if the server
// has no key. An error has the code kMismatch if the keys do not fit or the server is none.
[[nodiscard]] Result<std::unique_ptr<wire::BytesSeal>> greet_server(int fd, const wire::JobKey& key,
                                                                    const std::string& name,
                                                                    const std::string& hint,
                                                                    Time until);

}  // namespace thalweg::net
