// Keyed tags of data packets and control messages, and the checks that a receiver makes.
//
// The tag is AES-128-GMAC (NIST SP 800-38D), all 16 bytes of it. GMAC has a security proof, runs on
// the AES and carry-less multiplication instructions that servers have, reads the bytes once, and
// computes its key schedule once instead of once per packet. FastGmac computes it where the
// processor can, libcrypto elsewhere. Packets of 1400 bytes take 0.05 s per gigabyte, with
// libcrypto 0.14 s (`thalweg bench kernels`, 19 November 2026); HMAC-SHA-256 takes 0.72 s
// (`openssl speed -bytes 1400`). Poly1305 needs a fresh key per packet, and XXH3 is no MAC: whoever
// sees some of its outputs can forge others.
//
// GMAC is broken if one nonce is used twice under a key. So the job key is never used directly:
// each sender, receiver, KeyUse and pair of sessions has a key of its own, derived with
// HMAC-SHA-256, and the nonce is the sequence number, which never repeats under that key (wire.h).
// A session is a number that an end draws at random for each connection. It makes packets of
// earlier connections fail their tags; data packets carry 16 bits of it, which tell such packets
// from real forgeries.
//
// Without a job key only the job token is checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <thalweg/result.h>

#include "wire/control_message.h"
#include "wire/data_header.h"
#include "wire/replay_window.h"
#include "wire/wire.h"

namespace thalweg::wire {

inline constexpr std::size_t kJobKeySize = 16;

class JobKey {
 public:
  explicit JobKey(std::array<std::byte, kJobKeySize> bytes) : bytes_(bytes) {}
  // Parses 32 hexadecimal digits. The error never repeats the text, which may be a secret.
  static Result<JobKey> from_hex(std::string_view text);

  [[nodiscard]] std::span<const std::byte, kJobKeySize> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kJobKeySize> bytes_;
};

// What a key protects: data packets, control messages or ATP packets.
enum class KeyUse : std::uint8_t { kData = 1, kControl = 2, kAggregation = 3 };

// One direction between two ends.
struct KeyScope {
  // Numbers that tell the two ends apart: their ranks, or which of them connected.
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;
  std::uint64_t sender_session = 0;
  std::uint64_t receiver_session = 0;
};

// The part of the sender's session that data packets carry.
constexpr std::uint16_t session_mark(const KeyScope& scope) {
  return static_cast<std::uint16_t>(scope.sender_session & 0xffff);
}

// Proves to one end that the other holds the job key, before it believes anything else:
// HMAC-SHA-256 over the prover's number and the greetings of both ends, each of which holds a fresh
// session number. `prover` is the proving end's KeyScope::sender.
inline constexpr std::size_t kSessionProofSize = 32;
using SessionProof = std::array<std::byte, kSessionProofSize>;
[[nodiscard]] SessionProof prove_session(const JobKey& key, std::uint32_t prover,
                                         std::span<const std::byte> first_greeting,
                                         std::span<const std::byte> second_greeting);

// Compares in a time that does not depend on where the bytes differ.
[[nodiscard]] bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b);

// GMAC under the key of one scope and KeyUse. Neither copied nor shared between threads.
class Gmac {
 public:
  enum class Code : std::uint8_t { kFastest, kOpenSsl };

  Gmac(const JobKey& key, const KeyScope& scope, KeyUse use, Code code = Code::kFastest);
  ~Gmac();
  Gmac(Gmac&&) noexcept;
  Gmac& operator=(Gmac&&) noexcept;

  // The tag of `first` followed by `second`.
  [[nodiscard]] KeyedTag tag(std::uint64_t sequence, std::span<const std::byte> first,
                             std::span<const std::byte> second) {
    return tag(0, sequence, first, second);
  }
  // The same with a nonce of 96 bits, for senders that share a key.
  [[nodiscard]] KeyedTag tag(std::uint32_t origin, std::uint64_t sequence,
                             std::span<const std::byte> first, std::span<const std::byte> second);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Fills in the tags of what one end sends to another.
class Sealer {
 public:
  Sealer(const JobKey& key, const KeyScope& scope);

  // Fills in the tag after the header. Requires a header encoded with `keyed`, the scope's
  // session_mark() and this sequence number.
  void seal_data(std::uint64_t sequence, std::span<std::byte, data_overhead(true)> head,
                 std::span<const std::byte> payload);
  // Fills in the tag at the end of a message from encode_control().
  void seal_control(std::uint64_t sequence, std::span<std::byte> message);

 private:
  Gmac data_;
  Gmac control_;
};

enum class Refusal : std::uint8_t {
  kNone,
  kJob,       // it belongs to another job
  kKeying,    // it has no tag though there is a key, or has one though there is none
  kForged,    // the tag is wrong
  kReplayed,  // its sequence number was seen before
  kStale,     // it belongs to another session, or is older than the replay window
  kGap,       // control: messages before it are missing
};
inline constexpr int kRefusalCount = 7;
const char* name_of(Refusal refusal);

// Checks what one end receives from another, and counts every result.
class Verifier {
 public:
  // Without a key, only the job token is checked.
  Verifier(JobToken job, const std::optional<JobKey>& key, const KeyScope& scope,
           std::size_t window = ReplayWindow::kDefaultSize);

  // Both require a packet or message that was decoded into `header` or `about`. On anything but
  // kNone the caller drops it. After a refused message the stream cannot be trusted any more.
  Refusal check_data(std::span<const std::byte> packet, const DataHeader& header);
  Refusal check_control(std::span<const std::byte> message, const ControlEnvelope& about);

  // How often check_data() and check_control() returned this.
  [[nodiscard]] std::uint64_t data_count(Refusal refusal) const {
    return data_counts_[static_cast<std::size_t>(refusal)];
  }
  [[nodiscard]] std::uint64_t control_count(Refusal refusal) const {
    return control_counts_[static_cast<std::size_t>(refusal)];
  }

 private:
  using Counts = std::array<std::uint64_t, kRefusalCount>;

  Refusal judge_data(std::span<const std::byte> packet, const DataHeader& header);
  Refusal judge_control(std::span<const std::byte> message, const ControlEnvelope& about);

  JobToken job_;
  std::uint16_t session_;
  std::optional<Gmac> data_;
  std::optional<Gmac> control_;
  ReplayWindow window_;
  std::optional<std::uint64_t> last_control_;
  Counts data_counts_{};
  Counts control_counts_{};
};

}  // namespace thalweg::wire
