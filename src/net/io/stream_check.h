// Which TCP streams carry checksums, of those that are not sealed (THALWEG_CHECKSUM).
#pragma once

#include <cstdint>

#include "net/io/tcp.h"

namespace thalweg::net {

enum class StreamChecks : std::uint8_t {
  kNone,
  // Streams that cross a network. Within a host, bytes pass through memory only, as they do in
  // shared rings, and there a checksum costs a tenth to a half of the speed.
  kBetweenHosts,
  kAll,
};

// Whether this connected stream carries checksums. The end that made the stream decides, and says
// it in its hello.
[[nodiscard]] inline bool has_checks(StreamChecks checks, int fd) {
  return checks == StreamChecks::kAll ||
         (checks == StreamChecks::kBetweenHosts && !is_within_host(fd));
}

}  // namespace thalweg::net
