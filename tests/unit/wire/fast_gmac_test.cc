#include "wire/fast_gmac.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::wire {
namespace {

using GmacKey = std::array<std::byte, FastGmac::kKeySize>;
using GmacNonce = std::array<std::byte, FastGmac::kNonceSize>;

std::vector<std::byte> hex_bytes(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <std::size_t kSize>
std::array<std::byte, kSize> hex_array(std::string_view text) {
  const std::vector<std::byte> bytes = hex_bytes(text);
  std::array<std::byte, kSize> array{};
  CHECK(bytes.size() == kSize);
  std::ranges::copy(bytes, array.begin());
  return array;
}

void fill_randomly(Prng& prng, std::span<std::byte> bytes) {
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.below(256));
}

KeyedTag tag_of_openssl(const GmacKey& key, const GmacNonce& nonce,
                        std::span<const std::byte> message) {
  const auto octets = [](const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
  };
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  KeyedTag tag{};
  std::array<unsigned char, kKeyedTagSize> no_text{};
  int ignored = 0;
  CHECK(EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, octets(key.data()),
                           octets(nonce.data())) == 1);
  CHECK(message.empty() ||
        EVP_EncryptUpdate(cipher.get(), nullptr, &ignored, octets(message.data()),
                          static_cast<int>(message.size())) == 1);
  CHECK(EVP_EncryptFinal_ex(cipher.get(), no_text.data(), &ignored) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_GET_TAG, kKeyedTagSize, tag.data()) == 1);
  return tag;
}

std::uint64_t first_seed() {
  const char* const text = std::getenv("THALWEG_FIRST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20'261'119;
}

class FastGmacTest : public testing::Test {
 protected:
  void SetUp() override {
    if (FastGmac::widths().empty()) GTEST_SKIP() << "this processor has no VPCLMULQDQ";
  }
};

// Test case 1 of McGrew and Viega, "The Galois/Counter Mode of Operation"; the packet of 54 bytes
// of IEEE 802.1AE, annex C.1; and the first vector of NIST's gcmEncryptExtIV128 with 128 bits of
// associated data and no text.
TEST_F(FastGmacTest, tag__published_vectors) {
  struct Vector {
    std::string_view key, nonce, message, tag;
  };
  const std::vector<Vector> vectors{
      {"00000000000000000000000000000000", "000000000000000000000000", "",
       "58e2fccefa7e3061367f1d57a4e7455a"},
      {"ad7a2bd03eac835a6f620fdcb506b345", "12153524c0895e81b2c28465",
       "d609b1f056637a0d46df998d88e5222ab2c2846512153524c0895e81"
       "08000f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233340001",
       "f09478a9b09007d06f46e9b6a1da25dd"},
      {"77be63708971c4e240d1cb79e8d77feb", "e0e00f19fed7ba0136a797f3",
       "7a43ec1d9c0a5a78a0b16533a6213cab", "209fcc8d3675ed938e9c7166709dd946"},
  };
  for (const Vector& each : vectors) {
    for (const FastGmac::Width width : FastGmac::widths()) {
      const FastGmac gmac(hex_array<FastGmac::kKeySize>(each.key), width);
      EXPECT_EQ(gmac.tag(hex_array<FastGmac::kNonceSize>(each.nonce), hex_bytes(each.message), {}),
                hex_array<kKeyedTagSize>(each.tag))
          << each.tag << ", width " << static_cast<int>(width);
    }
  }
}

// Messages of all lengths up to a frame of 9000 bytes, split anywhere, at any address, under many
// keys, by the code of every width.
TEST_F(FastGmacTest, property__tags_are_those_of_openssl) {
  const std::uint64_t seed = first_seed();
  Prng prng(seed);
  constexpr std::size_t kMost = 9000;
  constexpr std::size_t kPad = 64;
  std::vector<std::byte> room(kMost + 2 * kPad);
  fill_randomly(prng, room);
  GmacKey key{};
  GmacNonce nonce{};
  for (std::size_t size = 0; size <= kMost; size += size < 1600 ? 1 : 1 + prng.below(40)) {
    if (size % 8 == 0) fill_randomly(prng, key);
    fill_randomly(prng, nonce);
    const std::span<const std::byte> message =
        std::span<const std::byte>(room).subspan(prng.below(kPad), size);
    // The head of a packet is often 36 bytes, and often everything is in one part.
    const std::size_t split = prng.chance(0.3)   ? size
                              : prng.chance(0.5) ? std::min<std::size_t>(size, 36)
                                                 : prng.below(size + 1);
    // A copy, so that the parts are not neighbours and a sanitizer sees their ends.
    const std::vector<std::byte> second(message.begin() + static_cast<std::ptrdiff_t>(split),
                                        message.end());
    const KeyedTag expected = tag_of_openssl(key, nonce, message);
    for (const FastGmac::Width width : FastGmac::widths()) {
      ASSERT_EQ(FastGmac(key, width).tag(nonce, message.first(split), second), expected)
          << size << " bytes split at " << split << ", width " << static_cast<int>(width)
          << ", THALWEG_FIRST_SEED=" << seed;
      ASSERT_EQ(FastGmac(key, width).tag(nonce, {}, message), expected)
          << size << " bytes, width " << static_cast<int>(width) << ", THALWEG_FIRST_SEED=" << seed;
    }
  }
}

TEST_F(FastGmacTest, property__another_bit_is_another_tag) {
  const std::uint64_t seed = first_seed();
  Prng prng(seed);
  GmacKey key{};
  fill_randomly(prng, key);
  for (const FastGmac::Width width : FastGmac::widths()) {
    const FastGmac gmac(key, width);
    for (int trial = 0; trial < 3000; ++trial) {
      GmacNonce nonce{};
      fill_randomly(prng, nonce);
      std::vector<std::byte> message(1 + prng.below(trial % 100 == 0 ? 9000 : 1500));
      fill_randomly(prng, message);
      const KeyedTag tag = gmac.tag(nonce, message, {});
      message[prng.below(message.size())] ^= std::byte{1} << prng.below(8);
      EXPECT_NE(gmac.tag(nonce, message, {}), tag) << "THALWEG_FIRST_SEED=" << seed;
      const KeyedTag changed = gmac.tag(nonce, message, {});
      nonce[prng.below(nonce.size())] ^= std::byte{1} << prng.below(8);
      EXPECT_NE(gmac.tag(nonce, message, {}), changed) << "THALWEG_FIRST_SEED=" << seed;
      message.pop_back();  // zero bytes at the end count, too
      message.push_back(std::byte{0});
      const KeyedTag longer = gmac.tag(nonce, message, {});
      message.pop_back();
      EXPECT_NE(gmac.tag(nonce, message, {}), longer) << "THALWEG_FIRST_SEED=" << seed;
    }
  }
}

}  // namespace
}  // namespace thalweg::wire
