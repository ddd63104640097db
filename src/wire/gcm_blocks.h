// The steps of AES-128-GCM on one block of 16 bytes, by the instructions AES and PCLMULQDQ, for
// WideGcm and FastGmac. Only for x86.
//
// GHASH works on numbers whose bits are in the order of the bytes reversed, and multiplied by x, so
// that a product needs no shift (Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction
// and its Usage for Computing the GCM Mode").
#pragma once

#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>

// Names the instructions of these functions, which become part of functions that use more.
#define THALWEG_GCM_BLOCK __attribute__((always_inline, target("aes,pclmul,ssse3,sse4.1")))

namespace thalweg::wire {

inline constexpr std::size_t kGcmBlock = 16;
inline constexpr int kAesRounds = 10;

// std::array would drop the alignment of its elements' type, as the compiler warns.
struct AesKeys {
  __m128i of[kAesRounds + 1];  // NOLINT(*-c-arrays)
};

THALWEG_GCM_BLOCK inline __m128i load_block(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
THALWEG_GCM_BLOCK inline void store_block(std::byte* to, __m128i block) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), block);
}
THALWEG_GCM_BLOCK inline __m128i reversed_block(__m128i block) {
  return _mm_shuffle_epi8(block,
                          _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// The sum of products before it is reduced. `middle` overlaps with half of each of the others.
struct GhashSum {
  __m128i low;
  __m128i middle;
  __m128i high;
};

THALWEG_GCM_BLOCK inline void ghash_add(GhashSum& sum, __m128i a, __m128i b) {
  sum.low = _mm_xor_si128(sum.low, _mm_clmulepi64_si128(a, b, 0x00));
  sum.high = _mm_xor_si128(sum.high, _mm_clmulepi64_si128(a, b, 0x11));
  sum.middle = _mm_xor_si128(sum.middle, _mm_clmulepi64_si128(a, b, 0x01));
  sum.middle = _mm_xor_si128(sum.middle, _mm_clmulepi64_si128(a, b, 0x10));
}

THALWEG_GCM_BLOCK inline __m128i ghash_reduce(const GhashSum& sum) {
  // x^127 + x^126 + x^121 in the upper half: what x^128 becomes.
  const __m128i p = _mm_set_epi64x(static_cast<long long>(0xc200000000000000ULL), 1);
  __m128i middle = _mm_xor_si128(sum.middle, _mm_clmulepi64_si128(p, sum.low, 0x01));
  middle = _mm_xor_si128(middle, _mm_shuffle_epi32(sum.low, 0x4e));
  const __m128i high = _mm_xor_si128(sum.high, _mm_clmulepi64_si128(p, middle, 0x01));
  return _mm_xor_si128(high, _mm_shuffle_epi32(middle, 0x4e));
}

THALWEG_GCM_BLOCK inline GhashSum ghash_nothing() {
  return {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
}

THALWEG_GCM_BLOCK inline __m128i ghash_multiply(__m128i a, __m128i b) {
  GhashSum sum = ghash_nothing();
  ghash_add(sum, a, b);
  return ghash_reduce(sum);
}

// H in the order of bits above, times x.
THALWEG_GCM_BLOCK inline __m128i ghash_key(__m128i h) {
  const __m128i carry_and_polynomial =
      _mm_set_epi64x(static_cast<long long>(0xc200000000000001ULL), 1);
  const __m128i carries = _mm_srai_epi32(_mm_shuffle_epi32(h, 0xd3), 31);
  return _mm_xor_si128(_mm_add_epi64(h, h), _mm_and_si128(carries, carry_and_polynomial));
}

template <int kConstant>
THALWEG_GCM_BLOCK inline __m128i aes_next_key(__m128i key) {
  const __m128i more = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, more);
}

THALWEG_GCM_BLOCK inline AesKeys aes_expand(__m128i key) {
  AesKeys keys;
  keys.of[0] = key;
  keys.of[1] = aes_next_key<0x01>(keys.of[0]);
  keys.of[2] = aes_next_key<0x02>(keys.of[1]);
  keys.of[3] = aes_next_key<0x04>(keys.of[2]);
  keys.of[4] = aes_next_key<0x08>(keys.of[3]);
  keys.of[5] = aes_next_key<0x10>(keys.of[4]);
  keys.of[6] = aes_next_key<0x20>(keys.of[5]);
  keys.of[7] = aes_next_key<0x40>(keys.of[6]);
  keys.of[8] = aes_next_key<0x80>(keys.of[7]);
  keys.of[9] = aes_next_key<0x1b>(keys.of[8]);
  keys.of[10] = aes_next_key<0x36>(keys.of[9]);
  return keys;
}

THALWEG_GCM_BLOCK inline __m128i aes_encrypt(const AesKeys& keys, __m128i block) {
  block = _mm_xor_si128(block, keys.of[0]);
  for (int round = 1; round < kAesRounds; ++round) block = _mm_aesenc_si128(block, keys.of[round]);
  return _mm_aesenclast_si128(block, keys.of[kAesRounds]);
}

}  // namespace thalweg::wire

#endif
