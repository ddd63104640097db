// Handles, hellos, answers and headers of pieces of NCCL's plugin: whatever is accepted encodes
// back to the same bytes. The length of the input says which of them it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "base/check.h"
#include "nccl/greeting.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg::nccl;
  const std::span all(reinterpret_cast<const std::byte*>(data), size);
  if (size == kNcclHandleSize) {
    const auto handle = decode_handle(all.first<kNcclHandleSize>());
    if (const auto* const good = std::get_if<Handle>(&handle)) {
      CHECK(std::ranges::equal(encode_handle(*good), all));
    }
  } else if (size == kStreamHelloSize) {
    const auto hello = decode_hello(all.first<kStreamHelloSize>());
    if (const auto* const good = std::get_if<StreamHello>(&hello)) {
      CHECK(std::ranges::equal(encode_hello(*good), all));
      CHECK(!check_hello_prefix(all.first<kGreetingPrefixSize>()));
    }
  } else if (size == kStreamAnswerSize) {
    const auto answer = decode_answer(all.first<kStreamAnswerSize>());
    if (const auto* const good = std::get_if<StreamAnswer>(&answer)) {
      CHECK(std::ranges::equal(encode_answer(*good), all));
    }
  } else if (size == kPieceHeaderSize) {
    const auto piece = decode_piece(all.first<kPieceHeaderSize>());
    if (piece) {
      CHECK(std::ranges::equal(encode_piece(*piece), all));
      CHECK(piece->offset + piece->length <= piece->size);
    }
  }
  return 0;
}
