// What the rendezvous store and its clients say to each other over TCP. All numbers are
// little-endian.
//
// Each side begins with a hello of 16 bytes, the client first:
//
//   offset bytes field
//   0      4     "TLWS"
//   4      1     version of the protocol; 0 to 4 are the same in all versions
//   5      1     0: hello; else a refusal, and why (HelloStatus)
//   6      1     1: this client holds the job key; 0: it holds none; the server's: 0
//   7      1     0
//   8      8     job token; in the server's: its challenge, 0 without a key
//
// With a key the client then sends an opening, and the server its answer (net/stream_key.h).
// Then the client sends requests, and the server a reply to each, in any order. A request:
//
//   0      4     bytes of the request after these four
//   4      1     what to do (StoreRequest::What)
//   5      1     1: an expected value is given; compare_and_set only
//   6      2     bytes of the key, K: from 1 to kMaxStoreKey
//   8      4     number of the request, which its reply repeats
//   12     4     milliseconds to wait for the key at most; get and wait only
//   16     4     bytes of the value, V: at most kMaxStoreValue; set and compare_and_set only
//   20     4     bytes of the expected value, E: at most kMaxStoreValue; compare_and_set only
//   24     8     what to add, two's complement; add only
//   32     K     key, then V bytes of the value, then E of the expected value
//
// A reply:
//
//   0      4     bytes of the reply after these four
//   4      1     how it went (StoreReply::Outcome)
//   5      3     0
//   8      4     number of the request
//   12     4     bytes of the value, V: at most kMaxStoreValue
//   16     V     value: what get found, the sum of add, what compare_and_set found instead
//
// What a request or reply has no use for is 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/hello.h"
#include "wire/wire.h"

namespace thalweg {

inline constexpr std::size_t kMaxStoreKey = 1024;
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;

struct StoreHello {
  HelloStatus status = HelloStatus::kHello;
  JobToken token = 0;  // of the server: its challenge
  bool keyed = false;
  bool operator==(const StoreHello&) const = default;
};
inline constexpr std::size_t kStoreHelloSize = 16;

[[nodiscard]] std::array<std::byte, kStoreHelloSize> encode_store_hello(const StoreHello& hello);
[[nodiscard]] WireError decode_store_hello(std::span<const std::byte, kStoreHelloSize> bytes,
                                           StoreHello& out);

struct StoreRequest {
  enum class What : std::uint8_t { kSet, kGet, kWait, kAdd, kCompareAndSet, kDelete };
  static constexpr int kWhatCount = 6;

  What what = What::kSet;
  std::uint32_t number = 0;
  std::string key;
  std::string value = {};
  std::optional<std::string> expected = {};  // none: the key must not exist
  std::int64_t delta = 0;
  std::uint32_t wait_ms = 0;
  bool operator==(const StoreRequest&) const = default;
};

struct StoreReply {
  enum class Outcome : std::uint8_t {
    kDone,
    kNotFound,   // there is no such key, or was none in time
    kDifferent,  // compare_and_set: the value is another
    kNoNumber,   // add: the value is not a decimal number, or the sum is too large
    kFull,       // the store has as many keys, bytes or waiting clients as it takes
  };
  static constexpr int kOutcomeCount = 5;

  Outcome outcome = Outcome::kDone;
  std::uint32_t number = 0;
  std::string value = {};
  bool operator==(const StoreReply&) const = default;
};

// Appends to `out`. Requires keys and values within the limits.
void encode_store(const StoreRequest& request, std::vector<std::byte>& out);
void encode_store(const StoreReply& reply, std::vector<std::byte>& out);

// Takes one message from the front of `bytes`, which is left as it is unless that succeeds. kShort:
// more bytes are needed; any other error: nothing that follows can be trusted.
[[nodiscard]] WireError take_store(std::span<const std::byte>& bytes, StoreRequest& out);
[[nodiscard]] WireError take_store(std::span<const std::byte>& bytes, StoreReply& out);

}  // namespace thalweg
