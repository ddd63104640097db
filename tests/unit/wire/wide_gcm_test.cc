#include "wire/wide_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "wire/record_cipher.h"

namespace thalweg::wire {
namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

class WideGcmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!WideGcm::supported()) GTEST_SKIP() << "this processor has no VAES or no VPCLMULQDQ";
  }
};

// Test cases 1 to 4 of McGrew and Viega, "The Galois/Counter Mode of Operation".
TEST_F(WideGcmTest, seal__published_vectors) {
  struct Vector {
    std::string_view key, nonce, clear, plain, sealed, tag;
  };
  constexpr std::string_view kKey = "feffe9928665731c6d6a8f9467308308";
  constexpr std::string_view kNonce = "cafebabefacedbaddecaf888";
  const std::vector<Vector> vectors{
      {"00000000000000000000000000000000", "000000000000000000000000", "", "", "",
       "58e2fccefa7e3061367f1d57a4e7455a"},
      {"00000000000000000000000000000000", "000000000000000000000000", "",
       "00000000000000000000000000000000", "0388dace60b6a392f328c2b971b2fe78",
       "ab6e47d42cec13bdf53a67b21257bddf"},
      {kKey, kNonce, "",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a"
       "6b5"
       "25b16aedf5aa0de657ba637b391aafd255",
       "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac8"
       "4aa"
       "051ba30b396a0aac973d58e091473f5985",
       "4d5c2af327cd64a62cf35abd2ba6fab4"},
      {kKey, kNonce, "feedfacedeadbeeffeedfacedeadbeefabaddad2",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a"
       "6b5"
       "25b16aedf5aa0de657ba637b39",
       "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac8"
       "4aa"
       "051ba30b396a0aac973d58e091",
       "5bc94fbc3221a5db94fae95ae7121a47"},
  };
  for (const Vector& each : vectors) {
    WideGcm cipher;
    const std::vector<std::byte> key = from_hex(each.key);
    const std::vector<std::byte> nonce = from_hex(each.nonce);
    std::vector<std::byte> bytes = from_hex(each.plain);
    cipher.set_key(std::span(key).first<WideGcm::kKeySize>());
    cipher.begin(std::span(nonce).first<WideGcm::kNonceSize>(), from_hex(each.clear));
    cipher.encrypt(bytes, bytes.data());
    EXPECT_EQ(bytes, from_hex(each.sealed));
    const KeyedTag tag = cipher.tag();
    EXPECT_EQ(std::vector<std::byte>(tag.begin(), tag.end()), from_hex(each.tag));
  }
}

// Records of all lengths, as this code and as OpenSSL's seals and opens them, in parts and in
// place.
TEST_F(WideGcmTest, records__are_those_of_openssl) {
  const char* const first = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t seed = first != nullptr ? std::strtoull(first, nullptr, 10) : 20'261'118;
  Prng prng(seed);
  StreamSecret secret;
  for (std::byte& b : secret) b = static_cast<std::byte>(prng.below(256));
  constexpr std::uint64_t kPerKey = 7;
  using End = RecordCipher::Direction;
  RecordCipher wide(secret, End::kSeal, kPerKey);
  RecordCipher usual(secret, End::kSeal, kPerKey, RecordCipher::Code::kOpenSsl);
  RecordCipher opens_wide(secret, End::kOpen, kPerKey);
  RecordCipher opens_usual(secret, End::kOpen, kPerKey, RecordCipher::Code::kOpenSsl);
  for (std::uint64_t number = 0; number < 1500; ++number) {
    const auto any_bytes = [&](std::size_t size) {
      std::vector<std::byte> bytes(size);
      for (std::byte& b : bytes) b = static_cast<std::byte>(prng.below(256));
      return bytes;
    };
    const std::vector<std::byte> plain = any_bytes(number < 600 ? number : prng.below(3000));
    const std::vector<std::byte> clear = any_bytes(prng.below(40));
    std::vector<std::byte> sealed = plain;
    std::vector<std::byte> wanted(plain.size());
    const KeyedTag tag = wide.seal(number, sealed, sealed, clear);
    ASSERT_EQ(tag, usual.seal(number, plain, wanted, clear)) << "record " << number << ", " << seed;
    ASSERT_EQ(sealed, wanted) << "record " << number << ", seed " << seed;
    for (RecordCipher* cipher : {&opens_wide, &opens_usual}) {
      std::vector<std::byte> opened = sealed;
      cipher->begin_open(number, clear);
      for (std::size_t at = 0; at < opened.size();) {
        const std::size_t size = std::min<std::size_t>(opened.size() - at, 1 + prng.below(700));
        cipher->open_part(std::span(opened).subspan(at, size), std::span(opened).subspan(at, size));
        at += size;
      }
      KeyedTag given = tag;
      const bool changes = prng.below(4) == 0;
      if (changes) given[prng.below(given.size())] ^= std::byte{1};
      ASSERT_EQ(cipher->end_open(given), !changes) << "record " << number << ", seed " << seed;
      ASSERT_EQ(opened, plain) << "record " << number << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace thalweg::wire
