#include "wire/fast_gmac.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "wire/gcm_blocks.h"

#if defined(__x86_64__)

#define THALWEG_CLMUL __attribute__((target("aes,pclmul,ssse3,sse4.1")))
#define THALWEG_CLMUL_256 __attribute__((target("aes,pclmul,ssse3,sse4.1,avx2,vpclmulqdq")))
#define THALWEG_CLMUL_512 \
  __attribute__((target("aes,pclmul,ssse3,sse4.1,avx2,vpclmulqdq,avx512f,avx512bw")))

namespace thalweg::wire {
namespace {

// The hash of that many blocks is reduced once: a packet with 1400 bytes of payload has 91.
constexpr std::size_t kHashPowers = 96;
// The blocks that the widest instruction takes.
constexpr std::size_t kUnitBlocks = 4;

// A sum of products in as many parts as the widest instruction has. `middle` is that of Karatsuba:
// the products of the sums of halves, so that three multiplications do instead of four.
struct GhashParts {
  alignas(64) __m128i low[kUnitBlocks];     // NOLINT(*-c-arrays)
  alignas(64) __m128i middle[kUnitBlocks];  // NOLINT(*-c-arrays)
  alignas(64) __m128i high[kUnitBlocks];    // NOLINT(*-c-arrays)
};

// Sets `sum` to that of the products of as many units of kUnitBlocks and powers.
using AddProducts = void (*)(GhashParts& sum, const __m128i* powers, const std::byte* blocks,
                             std::size_t units);

THALWEG_CLMUL_256 void add_products_256(GhashParts& sum, const __m128i* powers,
                                        const std::byte* blocks, std::size_t units) {
  const __m256i reverse = _mm256_broadcastsi128_si256(
      _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m256i low = _mm256_setzero_si256();
  __m256i middle = _mm256_setzero_si256();
  __m256i high = _mm256_setzero_si256();
  for (std::size_t i = 0; i < units * kUnitBlocks; i += 2) {
    const __m256i block = _mm256_shuffle_epi8(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(blocks + i * kGcmBlock)), reverse);
    const __m256i power = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(powers + i));
    const __m256i block_halves = _mm256_xor_si256(block, _mm256_shuffle_epi32(block, 0x4e));
    const __m256i power_halves = _mm256_xor_si256(power, _mm256_shuffle_epi32(power, 0x4e));
    low = _mm256_xor_si256(low, _mm256_clmulepi64_epi128(block, power, 0x00));
    high = _mm256_xor_si256(high, _mm256_clmulepi64_epi128(block, power, 0x11));
    middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(block_halves, power_halves, 0x00));
  }
  sum = {};
  _mm256_store_si256(reinterpret_cast<__m256i*>(sum.low), low);
  _mm256_store_si256(reinterpret_cast<__m256i*>(sum.middle), middle);
  _mm256_store_si256(reinterpret_cast<__m256i*>(sum.high), high);
}

THALWEG_CLMUL_512 void add_products_512(GhashParts& sum, const __m128i* powers,
                                        const std::byte* blocks, std::size_t units) {
  const __m512i reverse = _mm512_set4_epi32(0x00010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f);
  const __m512i other_half = _mm512_set4_epi32(0x07060504, 0x03020100, 0x0f0e0d0c, 0x0b0a0908);
  __m512i low = _mm512_setzero_si512();
  __m512i middle = _mm512_setzero_si512();
  __m512i high = _mm512_setzero_si512();
  for (std::size_t i = 0; i < units * kUnitBlocks; i += kUnitBlocks) {
    const __m512i block = _mm512_shuffle_epi8(_mm512_loadu_si512(blocks + i * kGcmBlock), reverse);
    const __m512i power = _mm512_loadu_si512(powers + i);
    const __m512i block_halves = _mm512_xor_si512(block, _mm512_shuffle_epi8(block, other_half));
    const __m512i power_halves = _mm512_xor_si512(power, _mm512_shuffle_epi8(power, other_half));
    low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128(block, power, 0x00));
    high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128(block, power, 0x11));
    middle = _mm512_xor_si512(middle, _mm512_clmulepi64_epi128(block_halves, power_halves, 0x00));
  }
  _mm512_store_si512(sum.low, low);
  _mm512_store_si512(sum.middle, middle);
  _mm512_store_si512(sum.high, high);
}

// Moves the bytes of a block up by `by` places, or down if that is negative. Zeros come in.
THALWEG_GCM_BLOCK inline __m128i moved(__m128i block, std::ptrdiff_t by) {
  static constexpr std::array<std::uint8_t, 3 * kGcmBlock> kPlaces = [] {
    std::array<std::uint8_t, 3 * kGcmBlock> places{};
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bool inside = i >= kGcmBlock && i < 2 * kGcmBlock;
      places[i] = inside ? static_cast<std::uint8_t>(i - kGcmBlock) : 0x80;
    }
    return places;
  }();
  const auto* const from = reinterpret_cast<const std::byte*>(kPlaces.data() + kGcmBlock - by);
  return _mm_shuffle_epi8(block, load_block(from));
}

// The first `size` bytes of a span, and zeros. Reads others of the span if there are, which is
// faster. Requires size < kGcmBlock.
THALWEG_GCM_BLOCK inline __m128i load_first(std::span<const std::byte> bytes, std::size_t size) {
  const auto rest = static_cast<std::ptrdiff_t>(kGcmBlock - size);
  if (bytes.size() >= kGcmBlock) return moved(moved(load_block(bytes.data()), rest), -rest);
  std::array<std::byte, kGcmBlock> block = {};
  if (size > 0) std::memcpy(block.data(), bytes.data(), size);
  return load_block(block.data());
}
// The last `size` bytes, in the same way.
THALWEG_GCM_BLOCK inline __m128i load_last(std::span<const std::byte> bytes, std::size_t size) {
  const auto rest = static_cast<std::ptrdiff_t>(kGcmBlock - size);
  if (bytes.size() >= kGcmBlock) {
    return moved(load_block(bytes.data() + bytes.size() - kGcmBlock), -rest);
  }
  return load_first(bytes.last(size), size);
}

}  // namespace

struct FastGmac::State {
  AesKeys keys;
  alignas(64) __m128i powers[kHashPowers];  // NOLINT(*-c-arrays): H^96 … H^1
  AddProducts add_products;
};

namespace {

// Hashes one message whose number of blocks is known before.
class GmacHash {
 public:
  THALWEG_GCM_BLOCK GmacHash(const __m128i* powers, AddProducts add_products, std::size_t blocks)
      : powers_(powers), add_products_(add_products), left_(blocks), sum_(ghash_nothing()) {
    at_ = kHashPowers - std::min(left_, kHashPowers);
  }

  THALWEG_GCM_BLOCK void add(__m128i block) {
    ghash_add(sum_, reversed_block(block), powers_[at_]);
    done(1);
  }

  THALWEG_GCM_BLOCK void add(const std::byte* blocks, std::size_t count) {
    while (count > 0) {
      const std::size_t units = std::min(count, kHashPowers - at_) / kUnitBlocks;
      if (units == 0) {
        add(load_block(blocks));
        blocks += kGcmBlock;
        --count;
        continue;
      }
      GhashParts parts;
      add_products_(parts, powers_ + at_, blocks, units);
      for (std::size_t i = 0; i < kUnitBlocks; ++i) {
        const __m128i ends = _mm_xor_si128(parts.low[i], parts.high[i]);
        sum_.low = _mm_xor_si128(sum_.low, parts.low[i]);
        sum_.high = _mm_xor_si128(sum_.high, parts.high[i]);
        sum_.middle = _mm_xor_si128(sum_.middle, _mm_xor_si128(parts.middle[i], ends));
      }
      done(units * kUnitBlocks);
      blocks += units * kUnitBlocks * kGcmBlock;
      count -= units * kUnitBlocks;
    }
  }

  [[nodiscard]] THALWEG_GCM_BLOCK __m128i value() const {
    return reversed_block(ghash_reduce(sum_));
  }

 private:
  // The last power is that of the last block, or of the last before a reduction.
  THALWEG_GCM_BLOCK void done(std::size_t blocks) {
    at_ += blocks;
    left_ -= blocks;
    if (at_ < kHashPowers || left_ == 0) return;
    at_ = kHashPowers - std::min(left_, kHashPowers);
    const __m128i hash = ghash_reduce(sum_);
    sum_ = ghash_nothing();
    ghash_add(sum_, hash, powers_[at_]);
  }

  const __m128i* powers_;
  AddProducts add_products_;
  std::size_t left_;  // blocks to come
  std::size_t at_;    // the power of the next block
  GhashSum sum_;
};

}  // namespace

struct FastGmac::Work {
  THALWEG_CLMUL static void set_key(State& s, const std::byte* key) {
    s.keys = aes_expand(load_block(key));
    const __m128i h = ghash_key(reversed_block(aes_encrypt(s.keys, _mm_setzero_si128())));
    s.powers[kHashPowers - 1] = h;
    for (std::size_t i = kHashPowers - 1; i-- > 0;) {
      s.powers[i] = ghash_multiply(s.powers[i + 1], h);
    }
  }

  THALWEG_CLMUL static void tag(const State& s, const std::byte* nonce,
                                std::span<const std::byte> first, std::span<const std::byte> second,
                                std::byte* out) {
    const std::uint64_t size = first.size() + second.size();
    GmacHash hash(s.powers, s.add_products, (size + kGcmBlock - 1) / kGcmBlock + 1);
    hash.add(first.data(), first.size() / kGcmBlock);
    if (const std::size_t used = first.size() % kGcmBlock; used > 0) {
      const std::size_t more = std::min(second.size(), kGcmBlock - used);
      hash.add(_mm_or_si128(load_last(first, used),
                            moved(load_first(second, more), static_cast<std::ptrdiff_t>(used))));
      second = second.subspan(more);
    }
    hash.add(second.data(), second.size() / kGcmBlock);
    if (const std::size_t rest = second.size() % kGcmBlock; rest > 0) {
      hash.add(load_last(second, rest));
    }
    hash.add(_mm_set_epi64x(0, static_cast<long long>(__builtin_bswap64(size * 8))));
    std::uint64_t nonce_start = 0;
    std::uint32_t nonce_end = 0;
    std::memcpy(&nonce_start, nonce, sizeof(nonce_start));
    std::memcpy(&nonce_end, nonce + sizeof(nonce_start), sizeof(nonce_end));
    const __m128i counter =
        _mm_set_epi64x(static_cast<long long>(std::uint64_t{1} << 56 | nonce_end),
                       static_cast<long long>(nonce_start));
    store_block(out, _mm_xor_si128(hash.value(), aes_encrypt(s.keys, counter)));
  }
};

std::span<const FastGmac::Width> FastGmac::widths() {
  static constexpr std::array<Width, 2> kAll = {Width::k256, Width::k512};
  static const bool has_256 = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
                              __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("avx2") &&
                              __builtin_cpu_supports("vpclmulqdq");
  static const bool has_512 =
      has_256 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const std::size_t count = has_512 ? 2 : has_256 ? 1 : 0;
  return std::span(kAll).first(count);
}

FastGmac::FastGmac(std::span<const std::byte, kKeySize> key, Width width)
    : state_(std::make_unique<State>()) {
  CHECK(std::ranges::find(widths(), width) != widths().end());
  state_->add_products = width == Width::k512 ? add_products_512 : add_products_256;
  Work::set_key(*state_, key.data());
}
FastGmac::~FastGmac() { OPENSSL_cleanse(state_.get(), sizeof(State)); }

KeyedTag FastGmac::tag(std::span<const std::byte, kNonceSize> nonce,
                       std::span<const std::byte> first, std::span<const std::byte> second) const {
  KeyedTag tag;
  Work::tag(*state_, nonce.data(), first, second, tag.data());
  return tag;
}

}  // namespace thalweg::wire

#else

namespace thalweg::wire {

struct FastGmac::State {};

std::span<const FastGmac::Width> FastGmac::widths() { return {}; }
FastGmac::FastGmac(std::span<const std::byte, kKeySize> /*key*/, Width /*width*/) {
  CHECK(false, "FastGmac is not supported here");
}
FastGmac::~FastGmac() = default;
KeyedTag FastGmac::tag(std::span<const std::byte, kNonceSize> /*nonce*/,
                       std::span<const std::byte> /*first*/,
                       std::span<const std::byte> /*second*/) const {
  return {};
}

}  // namespace thalweg::wire

#endif
