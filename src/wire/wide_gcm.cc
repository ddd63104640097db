#include "wire/wide_gcm.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Names the instructions that a function uses. Only supported() may be called without them.
#define THALWEG_WIDE __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq,ssse3,sse4.1")))

namespace thalweg::wire {
namespace {

constexpr std::size_t kBlock = 16;
constexpr int kRounds = 10;
// Vectors of two blocks that are encrypted side by side. That many hide the time of an instruction.
constexpr std::size_t kVectors = 8;
constexpr std::size_t kStride = kVectors * 2 * kBlock;
constexpr std::size_t kPowers = 2 * kVectors;

// std::array would drop the alignment of its elements' type, as the compiler warns.
struct Keys {
  __m128i of[kRounds + 1];  // NOLINT(*-c-arrays)
};
struct Powers {
  alignas(32) __m128i of[kPowers];  // NOLINT(*-c-arrays)
};

}  // namespace

// GHASH works on numbers whose bits are in the order of the bytes reversed, and multiplied by x, so
// that a product needs no shift (Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction
// and its Usage for Computing the GCM Mode").
struct WideGcm::State {
  Keys keys;
  Powers powers;  // H^16 … H^1, for sixteen blocks at once
  __m128i mask;   // the encrypted first counter: hides the tag
  __m128i hash;
  std::array<std::uint32_t, 3> nonce;
  std::uint32_t counter;
  std::uint64_t clear_bytes;
  std::uint64_t bytes;
  std::size_t used;  // bytes of the last block that exist; 0: it is complete
  std::array<std::byte, kBlock> stream;
  std::array<std::byte, kBlock> sealed;
};

namespace {

THALWEG_WIDE inline __m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
THALWEG_WIDE inline void store(std::byte* to, __m128i block) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), block);
}
THALWEG_WIDE inline __m128i reversed(__m128i block) {
  return _mm_shuffle_epi8(block,
                          _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
THALWEG_WIDE inline __m256i reversed2(__m256i blocks) {
  return _mm256_shuffle_epi8(
      blocks, _mm256_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4,
                              5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// x^127 + x^126 + x^121 in the upper half: what x^128 becomes.
THALWEG_WIDE inline __m128i polynomial() {
  return _mm_set_epi64x(static_cast<long long>(0xc200000000000000ULL), 1);
}

THALWEG_WIDE inline __m128i reduce(__m128i low, __m128i middle, __m128i high) {
  const __m128i p = polynomial();
  middle = _mm_xor_si128(middle, _mm_clmulepi64_si128(p, low, 0x01));
  middle = _mm_xor_si128(middle, _mm_shuffle_epi32(low, 0x4e));
  high = _mm_xor_si128(high, _mm_clmulepi64_si128(p, middle, 0x01));
  return _mm_xor_si128(high, _mm_shuffle_epi32(middle, 0x4e));
}

THALWEG_WIDE inline __m128i multiply(__m128i a, __m128i b) {
  const __m128i low = _mm_clmulepi64_si128(a, b, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, b, 0x11);
  const __m128i middle =
      _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10));
  return reduce(low, middle, high);
}

THALWEG_WIDE inline __m128i halves_added(__m256i both) {
  return _mm_xor_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

template <int kConstant>
THALWEG_WIDE inline __m128i next_key(__m128i key) {
  const __m128i more = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, more);
}

THALWEG_WIDE inline Keys expand(__m128i key) {
  Keys keys;
  keys.of[0] = key;
  keys.of[1] = next_key<0x01>(keys.of[0]);
  keys.of[2] = next_key<0x02>(keys.of[1]);
  keys.of[3] = next_key<0x04>(keys.of[2]);
  keys.of[4] = next_key<0x08>(keys.of[3]);
  keys.of[5] = next_key<0x10>(keys.of[4]);
  keys.of[6] = next_key<0x20>(keys.of[5]);
  keys.of[7] = next_key<0x40>(keys.of[6]);
  keys.of[8] = next_key<0x80>(keys.of[7]);
  keys.of[9] = next_key<0x1b>(keys.of[8]);
  keys.of[10] = next_key<0x36>(keys.of[9]);
  return keys;
}

THALWEG_WIDE inline __m128i encrypt_block(const Keys& keys, __m128i block) {
  block = _mm_xor_si128(block, keys.of[0]);
  for (int round = 1; round < kRounds; ++round) block = _mm_aesenc_si128(block, keys.of[round]);
  return _mm_aesenclast_si128(block, keys.of[kRounds]);
}

// H in the order of bits above, times x.
THALWEG_WIDE inline __m128i prepared(__m128i h) {
  const __m128i carry_and_polynomial =
      _mm_set_epi64x(static_cast<long long>(0xc200000000000001ULL), 1);
  const __m128i carries = _mm_srai_epi32(_mm_shuffle_epi32(h, 0xd3), 31);
  return _mm_xor_si128(_mm_add_epi64(h, h), _mm_and_si128(carries, carry_and_polynomial));
}

// The hash of sixteen more blocks: the sum of each times its power of H, reduced once.
THALWEG_WIDE inline __m128i hash_stride(const Powers& powers, __m128i hash,
                                        const std::byte* sealed) {
  __m256i low = _mm256_setzero_si256();
  __m256i middle = _mm256_setzero_si256();
  __m256i high = _mm256_setzero_si256();
  for (std::size_t i = 0; i < kVectors; ++i) {
    __m256i blocks =
        reversed2(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sealed + 2 * kBlock * i)));
    if (i == 0) blocks = _mm256_xor_si256(blocks, _mm256_zextsi128_si256(hash));
    const __m256i power = _mm256_load_si256(reinterpret_cast<const __m256i*>(&powers.of[2 * i]));
    low = _mm256_xor_si256(low, _mm256_clmulepi64_epi128(blocks, power, 0x00));
    high = _mm256_xor_si256(high, _mm256_clmulepi64_epi128(blocks, power, 0x11));
    middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks, power, 0x01));
    middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks, power, 0x10));
  }
  return reduce(halves_added(low), halves_added(middle), halves_added(high));
}

// Encrypts or decrypts sixteen blocks.
THALWEG_WIDE inline void cipher_stride(const Keys& keys, __m256i& counters, const std::byte* in,
                                       std::byte* out) {
  const __m256i two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
  __m256i blocks[kVectors];  // NOLINT(*-c-arrays)
  const __m256i first = _mm256_broadcastsi128_si256(keys.of[0]);
  for (__m256i& block : blocks) {
    block = _mm256_xor_si256(reversed2(counters), first);
    counters = _mm256_add_epi32(counters, two);
  }
  for (int round = 1; round < kRounds; ++round) {
    const __m256i key = _mm256_broadcastsi128_si256(keys.of[round]);
    for (__m256i& block : blocks) block = _mm256_aesenc_epi128(block, key);
  }
  const __m256i last = _mm256_broadcastsi128_si256(keys.of[kRounds]);
  for (std::size_t i = 0; i < kVectors; ++i) {
    const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * kBlock * i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * kBlock * i),
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
    s.hash = multiply(_mm_xor_si128(s.hash, reversed(sealed)), s.powers.of[kPowers - 1]);
  }

  THALWEG_WIDE static void set_key(State& s, const std::byte* key) {
    s.keys = expand(load(key));
    const __m128i h = prepared(reversed(encrypt_block(s.keys, _mm_setzero_si128())));
    s.powers.of[kPowers - 1] = h;
    for (std::size_t i = kPowers - 1; i-- > 0;) s.powers.of[i] = multiply(s.powers.of[i + 1], h);
  }

  THALWEG_WIDE static void begin(State& s, const std::byte* nonce,
                                 std::span<const std::byte> clear) {
    std::memcpy(s.nonce.data(), nonce, kNonceSize);
    s.counter = 2;
    s.mask = encrypt_block(s.keys, counter_block(s, 1));
    s.hash = _mm_setzero_si128();
    s.clear_bytes = clear.size();
    s.bytes = 0;
    s.used = 0;
    while (!clear.empty()) {
      std::array<std::byte, kBlock> block = {};
      const std::size_t size = std::min(clear.size(), kBlock);
      std::memcpy(block.data(), clear.data(), size);
      hash_block(s, load(block.data()));
      clear = clear.subspan(size);
    }
  }

  // Bytes of a block that is not complete. Returns how many it took.
  THALWEG_WIDE static std::size_t few(State& s, std::span<const std::byte> in, std::byte* out,
                                      bool seals) {
    if (s.used == 0) {
      store(s.stream.data(), encrypt_block(s.keys, counter_block(s, s.counter++)));
      s.sealed = {};
    }
    const std::size_t size = std::min(in.size(), kBlock - s.used);
    for (std::size_t i = 0; i < size; ++i) {
      const std::byte before = in[i];
      out[i] = before ^ s.stream[s.used + i];
      s.sealed[s.used + i] = seals ? out[i] : before;
    }
    s.used = (s.used + size) % kBlock;
    if (s.used == 0) hash_block(s, load(s.sealed.data()));
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
      const __m128i one = reversed(counter_block(s, s.counter));
      const __m128i next = reversed(counter_block(s, s.counter + 1));
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
    while (in.size() >= kBlock) {
      const __m128i text = load(in.data());
      const __m128i other =
          _mm_xor_si128(text, encrypt_block(s.keys, counter_block(s, s.counter++)));
      store(out, other);
      hash_block(s, seals ? other : text);
      advance(kBlock);
    }
    if (!in.empty()) few(s, in, out, seals);
  }

  THALWEG_WIDE static void tag(State& s, std::byte* out) {
    if (s.used != 0) hash_block(s, load(s.sealed.data()));
    s.used = 0;
    constexpr std::uint64_t kBits = 8;
    const __m128i lengths = _mm_set_epi64x(static_cast<long long>(s.clear_bytes * kBits),
                                           static_cast<long long>(s.bytes * kBits));
    s.hash = multiply(_mm_xor_si128(s.hash, lengths), s.powers.of[kPowers - 1]);
    store(out, _mm_xor_si128(reversed(s.hash), s.mask));
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
