// The messages between the rendezvous store and its clients, over TCP. All numbers are
// little-endian.
//
// Each side begins with a hello of 16 bytes; the client sends first:
//
//   offset bytes field
//   0      4     "TLWS"
//   4      1     version of the protocol; bytes 0 to 4 have this layout in all versions
//   5      1     0: hello; otherwise a refusal and its cause (HelloStatus)
//   6      1     client: 1 if it holds the job key, otherwise 0; server: 0
//   7      1     1: all that follows, both ways, carries checksums; only without a key. The client
//                says it, and the server repeats it
//   8      8     client: job token; server: its challenge, 0 without a key
//
// With a key the client then sends an opening, and the server its answer (net/auth/stream_key.h);
// all that follows is sealed (wire/sealed_bytes.h). With checksums all that follows is in records
// of wire/checked_bytes.h. After that the client sends requests, and the server sends one reply to
// each, in any order. A request:
//
//   0      4     bytes of the request after these four
//   4      1     operation (StoreRequest::What)
//   5      1     1: an expected value is given; compare_and_set only
//   6      2     bytes of the key, K: from 1 to kMaxStoreKey
//   8      4     number of the request, which its reply repeats
//   12     4     longest wait for the key, in milliseconds; get and wait only
//   16     4     bytes of the value, V: at most kMaxStoreValue; set and compare_and_set only
//   20     4     bytes of the expected value, E: at most kMaxStoreValue; compare_and_set only
//   24     8     number to add, two's complement; add only
//   32     K     key, then V bytes of the value, then E bytes of the expected value
//
// A reply:
//
//   0      4     bytes of the reply after these four
//   4      1     outcome (StoreReply::Outcome)
//   5      3     0
//   8      4     number of the request
//   12     4     bytes of the value, V: at most kMaxStoreValue
//   16     V     value: get's value, add's sum, or the value that compare_and_set found instead
//
// Fields that a request or reply does not use are 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/auth/hello.h"
#include "wire/wire.h"

namespace thalweg::net {

inline constexpr std::size_t kMaxStoreKey = 1024;
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;

struct StoreHello {
  HelloStatus status = HelloStatus::kHello;
  wire::JobToken token = 0;  // in the server's hello: its challenge
  bool keyed = false;
  bool checks = false;
  bool operator==(const StoreHello&) const = default;
};
inline constexpr std::size_t kStoreHelloSize = 16;

[[nodiscard]] std::array<std::byte, kStoreHelloSize> encode_store_hello(const StoreHello& hello);
[[nodiscard]] wire::WireError decode_store_hello(std::span<const std::byte, kStoreHelloSize> bytes,
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
    kNotFound,   // the key does not exist, or did not in time
    kDifferent,  // compare_and_set: the key has another value than expected
    kNoNumber,   // add: the value is not a decimal number, or the sum is too large
    kFull,       // the store's limit of keys, bytes or waiting requests is reached
    kChanged,    // the client's bytes changed on their way: the store takes nothing more from it
  };
  static constexpr int kOutcomeCount = 6;

  Outcome outcome = Outcome::kDone;
  std::uint32_t number = 0;
  std::string value = {};
  bool operator==(const StoreReply&) const = default;
};

// Appends the message to `out`. Requires keys and values within the limits.
void encode_store(const StoreRequest& request, std::vector<std::byte>& out);
void encode_store(const StoreReply& reply, std::vector<std::byte>& out);

// Takes one message from the front of `bytes`; on an error `bytes` does not change. kShort: more
// bytes are needed. Any other error: nothing that follows can be trusted.
[[nodiscard]] wire::WireError take_store(std::span<const std::byte>& bytes, StoreRequest& out);
[[nodiscard]] wire::WireError take_store(std::span<const std::byte>& bytes, StoreReply& out);

}  // namespace thalweg::net
