#include "wire/authenticate.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/modes.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "wire/byte_io.h"
#include "wire/fast_gmac.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kNonceSize = 12;
constexpr std::string_view kPurpose = "thalweg wire 1 AES-128-GMAC";
constexpr std::string_view kProofPurpose = "thalweg wire 1 session proof";

const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

using DerivedKey = std::array<std::byte, kJobKeySize>;

using Digest = std::array<std::byte, 32>;

Digest hmac_sha256(const JobKey& key, std::span<const std::byte> bytes) {
  Digest digest{};
  unsigned length = 0;
  CHECK(HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(kJobKeySize), octets(bytes.data()),
             bytes.size(), octets(digest.data()), &length) != nullptr);
  CHECK(length == digest.size());
  return digest;
}

// One block of a key derivation function like those of NIST SP 800-108: HMAC over a label and all
// fields that tell scopes apart, each of fixed length.
DerivedKey derive(const JobKey& key, const KeyScope& scope, KeyUse use) {
  std::array<std::byte, kPurpose.size() + 25> context{};
  ByteWriter writer(context);
  writer.put_text(kPurpose);
  writer.put(static_cast<std::uint8_t>(use));
  writer.put(scope.sender);
  writer.put(scope.receiver);
  writer.put(scope.sender_session);
  writer.put(scope.receiver_session);
  CHECK(writer.ok() && writer.used() == context.size());
  Digest digest = hmac_sha256(key, context);
  DerivedKey derived{};
  std::copy_n(digest.begin(), derived.size(), derived.begin());
  OPENSSL_cleanse(digest.data(), digest.size());
  return derived;
}

}  // namespace

Result<JobKey> JobKey::from_hex(std::string_view text) {
  constexpr std::size_t kDigits = 2 * kJobKeySize;
  if (text.size() != kDigits) {
    return Error(
        fmt::format("a job key is {} hexadecimal digits, not {} characters", kDigits, text.size()));
  }
  std::array<std::byte, kJobKeySize> bytes{};
  for (std::size_t i = 0; i < kJobKeySize; ++i) {
    const auto high = hex_digit(text[2 * i]);
    const auto low = hex_digit(text[2 * i + 1]);
    if (!high || !low) {
      return Error(fmt::format("a job key is {} hexadecimal digits: character {} is none", kDigits,
                               2 * i + (high ? 2 : 1)));
    }
    bytes[i] = static_cast<std::byte>(*high << 4 | *low);
  }
  return JobKey(bytes);
}

// Without FastGmac, uses libcrypto's low-level GCM functions with a block cipher of EVP: EVP's GCM
// takes 1.5 times as long for 1400 bytes, much of it to look up parameters by name. GMAC is GCM
// with nothing to encrypt: all bytes are associated data.
struct Gmac::Context {
  struct FreeCipher {
    void operator()(EVP_CIPHER_CTX* unused) const { EVP_CIPHER_CTX_free(unused); }
  };
  struct FreeGcm {
    void operator()(GCM128_CONTEXT* unused) const { CRYPTO_gcm128_release(unused); }
  };
  std::unique_ptr<FastGmac> fast;  // null: the others take its place
  std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> cipher;
  std::unique_ptr<GCM128_CONTEXT, FreeGcm> gcm;

  static void encrypt_block(const unsigned char in[16], unsigned char out[16], const void* cipher) {
    constexpr int kBlock = 16;
    int written = 0;
    // GCM passes the cipher as const; encrypting does not change it lastingly.
    auto* const context = static_cast<EVP_CIPHER_CTX*>(const_cast<void*>(cipher));  // NOLINT
    CHECK(EVP_EncryptUpdate(context, out, &written, in, kBlock) == 1 && written == kBlock);
  }
};

Gmac::Gmac(const JobKey& key, const KeyScope& scope, KeyUse use, Code code)
    : context_(std::make_unique<Context>()) {
  DerivedKey derived = derive(key, scope, use);
  if (code == Code::kFastest && !FastGmac::widths().empty()) {
    context_->fast = std::make_unique<FastGmac>(derived, FastGmac::widths().back());
    OPENSSL_cleanse(derived.data(), derived.size());
    return;
  }
  context_->cipher.reset(EVP_CIPHER_CTX_new());
  CHECK(context_->cipher != nullptr);
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  CHECK(EVP_EncryptInit_ex(cipher, EVP_aes_128_ecb(), nullptr, octets(derived.data()), nullptr) ==
            1 &&
        EVP_CIPHER_CTX_set_padding(cipher, 0) == 1);
  OPENSSL_cleanse(derived.data(), derived.size());
  context_->gcm.reset(CRYPTO_gcm128_new(cipher, &Context::encrypt_block));
  CHECK(context_->gcm != nullptr);
}
Gmac::~Gmac() = default;
Gmac::Gmac(Gmac&&) noexcept = default;
Gmac& Gmac::operator=(Gmac&&) noexcept = default;

KeyedTag Gmac::tag(std::uint32_t origin, std::uint64_t sequence, std::span<const std::byte> first,
                   std::span<const std::byte> second) {
  std::array<std::byte, kNonceSize> nonce{};
  ByteWriter writer(nonce);
  writer.put(sequence);
  writer.put(origin);
  if (context_->fast) return context_->fast->tag(nonce, first, second);
  GCM128_CONTEXT* const gcm = context_->gcm.get();
  CRYPTO_gcm128_setiv(gcm, octets(nonce.data()), nonce.size());
  CHECK(CRYPTO_gcm128_aad(gcm, octets(first.data()), first.size()) == 0 &&
            CRYPTO_gcm128_aad(gcm, octets(second.data()), second.size()) == 0,
        "libcrypto fails on a message of {} bytes", first.size() + second.size());
  KeyedTag result{};
  CRYPTO_gcm128_tag(gcm, octets(result.data()), result.size());
  return result;
}

SessionProof prove_session(const JobKey& key, std::uint32_t prover,
                           std::span<const std::byte> first_greeting,
                           std::span<const std::byte> second_greeting) {
  // The length of every part but the last is fixed or written before it, so no two inputs give the
  // same bytes.
  std::vector<std::byte> context(kProofPurpose.size() + 4 + 4);
  ByteWriter writer(context);
  writer.put_text(kProofPurpose);
  writer.put(prover);
  writer.put(static_cast<std::uint32_t>(first_greeting.size()));
  CHECK(writer.ok() && writer.used() == context.size());
  context.insert(context.end(), first_greeting.begin(), first_greeting.end());
  context.insert(context.end(), second_greeting.begin(), second_greeting.end());
  return hmac_sha256(key, context);
}

bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Sealer::Sealer(const JobKey& key, const KeyScope& scope)
    : data_(key, scope, KeyUse::kData), control_(key, scope, KeyUse::kControl) {}

void Sealer::seal_data(std::uint64_t sequence, std::span<std::byte, data_overhead(true)> head,
                       std::span<const std::byte> payload) {
  const KeyedTag tag = data_.tag(sequence, head.first(kDataHeaderSize), payload);
  std::ranges::copy(tag, head.begin() + kDataHeaderSize);
}

void Sealer::seal_control(std::uint64_t sequence, std::span<std::byte> message) {
  CHECK(message.size() >= kControlHeaderSize + kKeyedTagSize);
  const std::size_t covered = message.size() - kKeyedTagSize;
  const KeyedTag tag = control_.tag(sequence, message.first(covered), {});
  std::ranges::copy(tag, message.begin() + static_cast<std::ptrdiff_t>(covered));
}

const char* name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kJob:
      return "job";
    case Refusal::kKeying:
      return "keying";
    case Refusal::kForged:
      return "forged";
    case Refusal::kReplayed:
      return "replayed";
    case Refusal::kStale:
      return "stale";
    case Refusal::kGap:
      return "gap";
  }
  return "?";
}

Verifier::Verifier(JobToken job, const std::optional<JobKey>& key, const KeyScope& scope,
                   std::size_t window)
    : job_(job), session_(key ? session_mark(scope) : std::uint16_t{0}), window_(window) {
  if (!key) return;
  data_.emplace(*key, scope, KeyUse::kData);
  control_.emplace(*key, scope, KeyUse::kControl);
}

Refusal Verifier::check_data(std::span<const std::byte> packet, const DataHeader& header) {
  const Refusal refusal = judge_data(packet, header);
  ++data_counts_[static_cast<std::size_t>(refusal)];
  return refusal;
}

Refusal Verifier::check_control(std::span<const std::byte> message, const ControlEnvelope& about) {
  const Refusal refusal = judge_control(message, about);
  ++control_counts_[static_cast<std::size_t>(refusal)];
  return refusal;
}

Refusal Verifier::judge_data(std::span<const std::byte> packet, const DataHeader& header) {
  if (header.job != job_) return Refusal::kJob;
  if (header.keyed != data_.has_value()) return Refusal::kKeying;
  if (!header.keyed) return Refusal::kNone;
  if (header.session != session_) return Refusal::kStale;
  // The window is checked first, because it costs less than the tag. A packet that is not authentic
  // may be dropped for this reason too.
  const ReplayWindow::State state = window_.state(header.sequence);
  if (state == ReplayWindow::State::kSeen) return Refusal::kReplayed;
  if (state == ReplayWindow::State::kStale) return Refusal::kStale;
  const KeyedTag expected =
      data_->tag(header.sequence, packet.first(kDataHeaderSize), data_payload(packet, header));
  if (!same_secret(expected, packet.subspan<kDataHeaderSize, kKeyedTagSize>())) {
    return Refusal::kForged;
  }
  window_.accept(header.sequence);
  return Refusal::kNone;
}

Refusal Verifier::judge_control(std::span<const std::byte> message, const ControlEnvelope& about) {
  if (about.job != job_) return Refusal::kJob;
  if (about.keyed != control_.has_value()) return Refusal::kKeying;
  if (!about.keyed) return Refusal::kNone;
  const std::size_t covered = message.size() - kKeyedTagSize;
  const KeyedTag expected = control_->tag(about.sequence, message.first(covered), {});
  if (!same_secret(expected, message.last<kKeyedTagSize>())) return Refusal::kForged;
  if (last_control_ && about.sequence <= *last_control_) return Refusal::kReplayed;
  if (about.sequence != (last_control_ ? *last_control_ + 1 : 0)) return Refusal::kGap;
  last_control_ = about.sequence;
  return Refusal::kNone;
}

}  // namespace thalweg::wire
