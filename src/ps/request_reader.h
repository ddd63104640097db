// Assembles the requests of one client from the bytes that arrive. No I/O.
//
// Invariants:
// 1. Memory grows by kStep bytes at a time as bytes arrive, never to the size that a header claims.
// 2. A refused request is read to its end, so that its client gets the refusal.
// 3. A request that carries checksums is complete only if they hold.
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

#include "wire/checksum.h"
#include "wire/ps_message.h"

namespace thalweg::ps {

class RequestReader {
 public:
  static constexpr std::size_t kStep = std::size_t{1} << 20;

  enum class Progress : std::uint8_t {
    kMore,
    kNamed,     // header and text have arrived, a body follows: refuse() it or go on
    kComplete,  // the request has arrived: serve it and call next()
    kChanged,   // its payload changed on the way: answer it with an error and call next()
    kSpoiled,   // its header changed on the way: nothing that follows can be understood
    kVersion,   // the stream begins with another version's header, or its first byte changed
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
  // Whether the answer to this request carries checksums: that to the first one does, and to later
  // ones if the hello says so.
  [[nodiscard]] bool answer_checked() const { return checked_; }

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
  [[nodiscard]] std::size_t head_size() const {
    return checked_ ? wire::kCheckedPsHeaderSize : wire::kPsHeaderSize;
  }
  [[nodiscard]] Progress end_head();
  [[nodiscard]] Progress begin_body();
  [[nodiscard]] Progress end() const;

  Part part_ = Part::kHead;
  std::size_t received_ = 0;  // bytes of part_ that have arrived
  std::array<std::byte, wire::kCheckedPsHeaderSize> head_ = {};
  bool first_ = true;          // no request has ended yet
  bool checked_ = true;        // this request carries checksums
  std::uint32_t payload_ = 0;  // the checksum that its header has of its payload
  wire::Crc32c sum_;           // of the payload so far
  wire::PsHeader header_;
  std::string text_;
  std::vector<std::byte> body_;
  std::optional<Error> refusal_;
};

}  // namespace thalweg::ps
