// StoreCover: how the bytes of a connection to the store travel after the hellos, at one of its
// ends: sealed where there is a job key, otherwise with checksums.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "net/auth/stream_key.h"
#include "wire/checked_bytes.h"
#include "wire/sealed_bytes.h"

namespace thalweg::net {

class StoreCover {
 public:
  // With checksums.
  StoreCover() = default;
  explicit StoreCover(const StreamSecrets& secrets)
      : seal_(std::make_unique<wire::BytesSeal>(secrets.out, secrets.in)) {}

  [[nodiscard]] bool sealed() const { return seal_ != nullptr; }
  // What finds that bytes changed, for messages.
  [[nodiscard]] const char* check() const { return sealed() ? "AES-GCM tag" : "CRC-32C"; }
  // Appends to `out` what is sent for `plain`.
  void put(std::span<const std::byte> plain, std::vector<std::byte>& out) {
    sealed() ? seal_->out.seal(plain, out) : wire::put_checked_bytes(plain, out);
  }
  // Appends to `plain` what is complete of `bytes`, and takes it from there. Returns false if bytes
  // changed on the way: then nothing that follows can be trusted.
  [[nodiscard]] bool take(std::vector<std::byte>& bytes, std::vector<std::byte>& plain) {
    std::span<const std::byte> left(bytes);
    const wire::WireError error =
        sealed() ? seal_->in.open(left, plain) : wire::take_checked_bytes(left, plain);
    bytes.erase(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(left.size()));
    return error == wire::WireError::kNone || error == wire::WireError::kShort;
  }

 private:
  std::unique_ptr<wire::BytesSeal> seal_;
};

}  // namespace thalweg::net
