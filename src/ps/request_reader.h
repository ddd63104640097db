// Assembles the requests of one client from the bytes that arrive. No I/O.
//
// Invariants:
// 1. Memory grows by kStep bytes at a time as bytes arrive, never to the size that a header claims.
// 2. A refused request is read to its end, so that its client gets the refusal.
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

namespace thalweg::ps {

class RequestReader {
 public:
  static constexpr std::size_t kStep = std::size_t{1} << 20;

  enum class Progress : std::uint8_t {
    kMore,
    kNamed,     // header and text have arrived, a body follows: refuse() it or go on
    kComplete,  // the request has arrived: serve it and call next()
    kBad,       // not a request: the stream cannot be trusted any more
  };

  // Memory for the next bytes: at least one, and none beyond the end of this request.
  [[nodiscard]] std::span<std::byte> room();
  // This many bytes were written to room().
  [[nodiscard]] Progress on_received(std::size_t bytes);
  // Refuses the request: its body is not kept, and the server answers it with `why`.
  void refuse(Error why) { refusal_ = std::move(why); }
  // Begins the next request.
  void next();

  [[nodiscard]] const wire::PsHeader& header() const { return header_; }
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
  std::size_t received_ = 0;  // bytes of part_ that have arrived
  std::array<std::byte, wire::kPsHeaderSize> head_ = {};
  wire::PsHeader header_;
  std::string text_;
  std::vector<std::byte> body_;
  std::optional<Error> refusal_;
};

}  // namespace thalweg::ps
