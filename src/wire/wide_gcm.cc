#include "wire/wide_gcm.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/gcm_blocks.h"

#if defined(__x86_64__)

// Names the instructions that a function uses. Only supported() may be called without them.
#define THALWEG_WIDE __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq,ssse3,sse4.1")))

namespace thalweg::wire {
namespace {

// Vectors of two blocks that are encrypted side by side. That many hide the time of an instruction.
constexpr std::size_t kVectors = 8;
constexpr std::size_t kStride = kVectors * 2 * kGcmBlock;
constexpr std::size_t kPowers = 2 * kVectors;

// std::array would drop the alignment of its elements' type, as the compiler warns.
struct Powers {
  alignas(32) __m128i of[kPowers];  // NOLINT(*-c-arrays)
};

}  // namespace

struct WideGcm::State {
  AesKeys keys;
  Powers powers;  // H^16 … H^1, for sixteen blocks at once
  __m128i mask;   // the encrypted first counter: hides the tag
  __m128i hash;
  std::array<std::uint32_t, 3> nonce;
  std::uint32_t counter;
  std::uint64_t clear_bytes;
  std::uint64_t bytes;
  std::size_t used;  // bytes of the last block that exist; 0: it is complete
  std::array<std::byte, kGcmBlock> stream;
  std::array<std::byte, kGcmBlock> sealed;
};

namespace {

THALWEG_WIDE inline __m256i reversed2(__m256i blocks) {
  return _mm256_shuffle_epi8(
      blocks, _mm256_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4,
                              5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

THALWEG_WIDE inline __m128i halves_added(__m256i both) {
  return _mm_xor_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

// The hash of sixteen more blocks: the sum of each times its power of H, reduced once.
THALWEG_WIDE inline __m128i hash_stride(const Powers& powers, __m128i hash,
                                        const std::byte* sealed) {
  __m256i low = _mm256_setzero_si256();
  __m256i middle = _mm256_setzero_si256();
  __m256i high = _mm256_setzero_si256();
  for (std::size_t i = 0; i < kVectors; ++i) {
    __m256i blocks =
        reversed2(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sealed + 2 * kGcmBlock * i)));
    if (i == 0) blocks = _mm256_xor_si256(blocks, _mm256_zextsi128_si256(hash));
    const __m256i power = _mm256_load_si256(reinterpret_cast<const __m256i*>(&powers.of[2 * i]));
    low = _mm256_xor_si256(low, _mm256_clmulepi64_epi128(blocks, power, 0x00));
    high = _mm256_xor_si256(high, _mm256_clmulepi64_epi128(blocks, power, 0x11));
    middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks, power, 0x01));
    middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks, power, 0x10));
  }
  return ghash_reduce({halves_added(low), halves_added(middle), halves_added(high)});
}

// Encrypts or decrypts sixteen blocks.
THALWEG_WIDE inline void cipher_stride(const AesKeys& keys, __m256i& counters, const std::byte* in,
                                       std::byte* out) {
  const __m256i two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
  __m256i blocks[kVectors];  // NOLINT(*-c-arrays)
  const __m256i first = _mm256_broadcastsi128_si256(keys.of[0]);
  for (__m256i& block : blocks) {
    block = _mm256_xor_si256(reversed2(counters), first);
    counters = _mm256_add_epi32(counters, two);
  }
  for (int round = 1; round < kAesRounds; ++round) {
    const __m256i key = _mm256_broadcastsi128_si256(keys.of[round]);
    for (__m256i& block : blocks) block = _mm256_aesenc_epi128(block, key);
  }
  const __m256i last = _mm256_broadcastsi128_si256(keys.of[kAesRounds]);
  for (std::size_t i = 0; i < kVectors; ++i) {
    const __m256i text =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * kGcmBlock * i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * kGcmBlock * i),
                        _mm256_xor_si256(_mm256_aesenclast_epi128(blocks[i], last), text));
  }
}

}  // namespace

// What the members do. A record's bytes come in any portions, so a block may be incomplete between
// two calls.
struct WideGcm::Work {
  THALWEG_WIDE static __m128i counter_block(const State& s, std::uint32_t counter) {
    return _mm_set_epi32(static_cast<int>(__builtin_bswap32(counter)), static_cast<int>(s.nonce[2]),
                         static_cast<int>(s.nonce[1]), static_cast<int>(s.nonce[0]));
  }

  THALWEG_WIDE static void hash_block(State& s, __m128i sealed) {
    s.hash =
        ghash_multiply(_mm_xor_si128(s.hash, reversed_block(sealed)), s.powers.of[kPowers - 1]);
  }

  THALWEG_WIDE static void set_key(State& s, const std::byte* key) {
    s.keys = aes_expand(load_block(key));
    const __m128i h = ghash_key(reversed_block(aes_encrypt(s.keys, _mm_setzero_si128())));
    s.powers.of[kPowers - 1] = h;
    for (std::size_t i = kPowers - 1; i-- > 0;)
      s.powers.of[i] = ghash_multiply(s.powers.of[i + 1], h);
  }

  THALWEG_WIDE static void begin(State& s, const std::byte* nonce,
                                 std::span<const std::byte> clear) {
    std::memcpy(s.nonce.data(), nonce, kNonceSize);
    s.counter = 2;
    s.mask = aes_encrypt(s.keys, counter_block(s, 1));
    s.hash = _mm_setzero_si128();
    s.clear_bytes = clear.size();
    s.bytes = 0;
    s.used = 0;
    while (!clear.empty()) {
      std::array<std::byte, kGcmBlock> block = {};
      const std::size_t size = std::min(clear.size(), kGcmBlock);
      std::memcpy(block.data(), clear.data(), size);
      hash_block(s, load_block(block.data()));
      clear = clear.subspan(size);
    }
  }

  // Bytes of a block that is not complete. Returns how many it took.
  THALWEG_WIDE static std::size_t few(State& s, std::span<const std::byte> in, std::byte* out,
                                      bool seals) {
    if (s.used == 0) {
      store_block(s.stream.data(), aes_encrypt(s.keys, counter_block(s, s.counter++)));
      s.sealed = {};
    }
    const std::size_t size = std::min(in.size(), kGcmBlock - s.used);
    for (std::size_t i = 0; i < size; ++i) {
      const std::byte before = in[i];
      out[i] = before ^ s.stream[s.used + i];
      s.sealed[s.used + i] = seals ? out[i] : before;
    }
    s.used = (s.used + size) % kGcmBlock;
    if (s.used == 0) hash_block(s, load_block(s.sealed.data()));
    return size;
  }

  THALWEG_WIDE static void update(State& s, std::span<const std::byte> in, std::byte* out,
                                  bool seals) {
    s.bytes += in.size();
    const auto advance = [&](std::size_t size) {
      in = in.subspan(size);
      out += size;
    };
    while (s.used != 0 && !in.empty()) advance(few(s, in, out, seals));
    if (in.size() >= kStride) {
      const __m128i one = reversed_block(counter_block(s, s.counter));
      const __m128i next = reversed_block(counter_block(s, s.counter + 1));
      __m256i counters = _mm256_set_m128i(next, one);
      __m128i hash = s.hash;
      while (in.size() >= kStride) {
        if (!seals) hash = hash_stride(s.powers, hash, in.data());
        cipher_stride(s.keys, counters, in.data(), out);
        if (seals) hash = hash_stride(s.powers, hash, out);
        s.counter += static_cast<std::uint32_t>(kPowers);
        advance(kStride);
      }
      s.hash = hash;
    }
    while (in.size() >= kGcmBlock) {
      const __m128i text = load_block(in.data());
      const __m128i other = _mm_xor_si128(text, aes_encrypt(s.keys, counter_block(s, s.counter++)));
      store_block(out, other);
      hash_block(s, seals ? other : text);
      advance(kGcmBlock);
    }
    if (!in.empty()) few(s, in, out, seals);
  }

  THALWEG_WIDE static void tag(State& s, std::byte* out) {
    if (s.used != 0) hash_block(s, load_block(s.sealed.data()));
    s.used = 0;
    constexpr std::uint64_t kBits = 8;
    const __m128i lengths = _mm_set_epi64x(static_cast<long long>(s.clear_bytes * kBits),
                                           static_cast<long long>(s.bytes * kBits));
    s.hash = ghash_multiply(_mm_xor_si128(s.hash, lengths), s.powers.of[kPowers - 1]);
    store_block(out, _mm_xor_si128(reversed_block(s.hash), s.mask));
  }
};

bool WideGcm::supported() {
  static const bool is = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("aes") &&
                         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vaes") &&
                         __builtin_cpu_supports("vpclmulqdq");
  return is;
}

WideGcm::WideGcm() : state_(std::make_unique<State>()) { CHECK(supported()); }
WideGcm::~WideGcm() { OPENSSL_cleanse(state_.get(), sizeof(State)); }

void WideGcm::set_key(std::span<const std::byte, kKeySize> key) {
  Work::set_key(*state_, key.data());
}
void WideGcm::begin(std::span<const std::byte, kNonceSize> nonce,
                    std::span<const std::byte> clear) {
  Work::begin(*state_, nonce.data(), clear);
}
void WideGcm::encrypt(std::span<const std::byte> in, std::byte* out) {
  Work::update(*state_, in, out, true);
}
void WideGcm::decrypt(std::span<const std::byte> in, std::byte* out) {
  Work::update(*state_, in, out, false);
}
KeyedTag WideGcm::tag() {
  KeyedTag tag;
  Work::tag(*state_, tag.data());
  return tag;
}

}  // namespace thalweg::wire

#else

namespace thalweg::wire {

struct WideGcm::State {};

bool WideGcm::supported() { return false; }
WideGcm::WideGcm() { CHECK(false, "WideGcm is not supported here"); }
WideGcm::~WideGcm() = default;
void WideGcm::set_key(std::span<const std::byte, kKeySize> /*key*/) {}
void WideGcm::begin(std::span<const std::byte, kNonceSize> /*nonce*/,
                    std::span<const std::byte> /*clear*/) {}
void WideGcm::encrypt(std::span<const std::byte> /*in*/, std::byte* /*out*/) {}
void WideGcm::decrypt(std::span<const std::byte> /*in*/, std::byte* /*out*/) {}
KeyedTag WideGcm::tag() { return {}; }

}  // namespace thalweg::wire

#endif
