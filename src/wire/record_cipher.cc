#include "wire/record_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <climits>
#include <functional>
#include <string_view>

#include "base/check.h"
#include "wire/authenticate.h"
#include "wire/byte_io.h"
#include "wire/wide_gcm.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kAesKeySize = 16;
constexpr std::size_t kRecordNonceSize = 12;
constexpr std::string_view kRecordPurpose = "thalweg stream 1 AES-128-GCM";

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

struct RecordCipher::Context {
  struct FreeCipher {
    void operator()(EVP_CIPHER_CTX* unused) const { EVP_CIPHER_CTX_free(unused); }
  };
  std::unique_ptr<WideGcm> wide;                       // null: this processor cannot
  std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> cipher;  // null: `wide` takes its place
  std::array<std::byte, kRecordNonceSize> base = {};
};

RecordCipher::RecordCipher(const StreamSecret& secret, Direction direction,
                           std::uint64_t records_per_key, Code code)
    : secret_(secret),
      direction_(direction),
      records_per_key_(records_per_key),
      context_(std::make_unique<Context>()) {
  CHECK(records_per_key_ > 0);
  if (code == Code::kFastest && WideGcm::supported()) {
    context_->wide = std::make_unique<WideGcm>();
    return;
  }
  context_->cipher.reset(EVP_CIPHER_CTX_new());
  CHECK(context_->cipher != nullptr);
  CHECK(EVP_CipherInit_ex(context_->cipher.get(), EVP_aes_128_gcm(), nullptr, nullptr, nullptr,
                          direction_ == Direction::kSeal ? 1 : 0) == 1);
}
RecordCipher::~RecordCipher() { OPENSSL_cleanse(secret_.data(), secret_.size()); }
RecordCipher::RecordCipher(RecordCipher&&) noexcept = default;
RecordCipher& RecordCipher::operator=(RecordCipher&&) noexcept = default;

void RecordCipher::begin(std::uint64_t number, std::span<const std::byte> clear) {
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  const std::uint64_t key_number = number / records_per_key_;
  if (key_number_ != key_number) {
    std::array<std::byte, kRecordPurpose.size() + sizeof(key_number)> label{};
    ByteWriter writer(label);
    writer.put_text(kRecordPurpose);
    writer.put(key_number);
    CHECK(writer.ok() && writer.used() == label.size());
    std::array<std::byte, 32> block{};
    unsigned length = 0;
    CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()), raw(label.data()),
               label.size(), raw(block.data()), &length) != nullptr &&
          length == block.size());
    if (context_->wide) {
      context_->wide->set_key(std::span(block).first<kAesKeySize>());
    } else {
      CHECK(EVP_CipherInit_ex(cipher, nullptr, nullptr, raw(block.data()), nullptr, -1) == 1);
    }
    std::copy_n(block.begin() + kAesKeySize, kRecordNonceSize, context_->base.begin());
    OPENSSL_cleanse(block.data(), block.size());
    key_number_ = key_number;
  }
  std::array<std::byte, kRecordNonceSize> nonce{};
  ByteWriter(nonce).put(number);
  std::ranges::transform(nonce, context_->base, nonce.begin(), std::bit_xor());
  if (context_->wide) {
    context_->wide->begin(nonce, clear);
    return;
  }
  CHECK(EVP_CipherInit_ex(cipher, nullptr, nullptr, nullptr, raw(nonce.data()), -1) == 1);
  update(clear, nullptr);
}

// Without `out` the bytes are only covered by the tag.
void RecordCipher::update(std::span<const std::byte> in, std::byte* out) {
  if (in.empty()) return;
  CHECK(in.size() <= INT_MAX, "a record of {} bytes", in.size());
  if (context_->wide) {
    if (direction_ == Direction::kSeal) {
      context_->wide->encrypt(in, out);
    } else {
      context_->wide->decrypt(in, out);
    }
    return;
  }
  const int size = static_cast<int>(in.size());
  int written = 0;
  CHECK(EVP_CipherUpdate(context_->cipher.get(), raw(out), &written, raw(in.data()), size) == 1 &&
        written == size);
}

KeyedTag RecordCipher::seal(std::uint64_t number, std::span<const std::byte> plain,
                            std::span<std::byte> out, std::span<const std::byte> clear) {
  CHECK(direction_ == Direction::kSeal && out.size() == plain.size());
  begin(number, clear);
  update(plain, out.data());
  if (context_->wide) return context_->wide->tag();
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  KeyedTag tag{};
  int written = 0;
  CHECK(EVP_CipherFinal_ex(cipher, raw(tag.data()), &written) == 1 && written == 0);
  CHECK(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                            tag.data()) == 1);
  return tag;
}

void RecordCipher::begin_open(std::uint64_t number, std::span<const std::byte> clear) {
  CHECK(direction_ == Direction::kOpen);
  begin(number, clear);
}

void RecordCipher::open_part(std::span<const std::byte> sealed, std::span<std::byte> out) {
  CHECK(out.size() == sealed.size());
  update(sealed, out.data());
}

bool RecordCipher::end_open(const KeyedTag& tag) {
  if (context_->wide) return same_secret(context_->wide->tag(), tag);
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  KeyedTag wanted = tag;  // OpenSSL takes it as not const
  CHECK(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(wanted.size()),
                            wanted.data()) == 1);
  std::array<std::byte, kKeyedTagSize> rest{};
  int written = 0;
  return EVP_CipherFinal_ex(cipher, raw(rest.data()), &written) == 1 && written == 0;
}

}  // namespace thalweg::wire
