// The requests of one client, as their bytes arrive. No I/O.
//
// 1. Memory grows with what has arrived, by kStep at a time, never with what a header claims.
// 2. A request that is refused is read to its end, so that its client hears the refusal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "wire/ps_message.h"

namespace thalweg {

class RequestReader {
 public:
  static constexpr std::size_t kStep = std::size_t{1} << 20;

  enum class Progress : std::uint8_t {
    kMore,
    kNamed,     // header and text are there, a body is to come: refuse() it or go on
    kComplete,  // next() when it has been served
    kBad,       // no request: the stream cannot be trusted further
  };

  // Where the next bytes go: at least one, and none of the request after this.
  [[nodiscard]] std::span<std::byte> room();
  // So many bytes are there.
  [[nodiscard]] Progress on_received(std::size_t bytes);
  // Its body is not kept, and serving it means to say why.
  void refuse(Error why) { refusal_ = std::move(why); }
  void next();

  [[nodiscard]] const PsHeader& header() const { return header_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }
  [[nodiscard]] std::span<const std::byte> body() const { return {body_.data(), received_}; }
  // The body as elements.
  [[nodiscard]] std::span<const float> elements() const {
    return {reinterpret_cast<const float*>(body_.data()), received_ / sizeof(float)};
  }

 private:
  enum class Part : std::uint8_t { kHead, kText, kBody };
  [[nodiscard]] Progress begin_body();

  Part part_ = Part::kHead;
  std::size_t received_ = 0;  // of the part
  std::array<std::byte, kPsHeaderSize> head_ = {};
  PsHeader header_;
  std::string text_;
  std::vector<std::byte> body_;
  std::optional<Error> refusal_;
};

}  // namespace thalweg
