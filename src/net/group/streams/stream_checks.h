// How the frames of streams between ranks are checked (connection.h): with checksums, sealed, or
// not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/auth/stream_key.h"
#include "net/io/fd.h"
#include "net/io/stream_check.h"
#include "proto/collective/joining.h"
#include "wire/frame.h"
#include "wire/sealed_frame.h"

namespace thalweg::net {

// How frames of a connected stream are checked if it is not sealed. The rank that makes the stream
// says it in its hello.
[[nodiscard]] inline wire::FrameCheck check_of(StreamChecks checks, int fd) {
  return has_checks(checks, fd) ? wire::FrameCheck::kChecksum : wire::FrameCheck::kNone;
}

// A stream whose first bytes are exchanged, and how its frames are checked.
struct CheckedStream {
  Fd fd;
  wire::FrameCheck check = wire::FrameCheck::kNone;
  std::unique_ptr<wire::StreamSeal> seal = {};  // set if `check` is kSealed
};

// A stream that this process has connected and said hello on.
struct GreetedStream {
  CheckedStream stream;
  std::optional<wire::SessionProof> answer = {};  // as in DialedStream
  std::size_t streams = 1;                        // as in DialedStream
  std::uint32_t way = 0;                          // by which of the ways it was connected
};

[[nodiscard]] std::unique_ptr<wire::StreamSeal> seal_of(
    const std::optional<StreamSecrets>& secrets);

// Says hello on a stream that this rank has made, with the check that the stream gets. None: the
// system takes no bytes (errno).
[[nodiscard]] std::optional<GreetedStream> say_hello(DialedStream dialed, proto::HelloFrame hello,
                                                     StreamChecks checks);

// The bytes of a frame that is sent before or without a Connection. `seal`: set if `check` is
// kSealed.
[[nodiscard]] std::vector<std::byte> frame_bytes(wire::Frame frame, std::string text,
                                                 wire::FrameCheck check, wire::StreamSeal* seal);

}  // namespace thalweg::net
