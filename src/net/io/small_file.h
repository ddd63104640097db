// Reads a whole file that a user names and that is small: a key, a list of hosts, a configuration.
#pragma once

#include <cstddef>
#include <string>

#include <thalweg/result.h>

namespace thalweg::net {

inline constexpr std::size_t kMaxKeyFile = 4096;                     // bytes
inline constexpr std::size_t kMaxListFile = std::size_t{1} << 20;    // of hosts
inline constexpr std::size_t kMaxConfigFile = std::size_t{1} << 20;  // of a program

// Only a regular file of at most `most` bytes is read. A folder, a pipe, a device, a socket or a
// larger file is an error at once: it neither blocks nor fills the memory. `what` says what the
// file should hold ("the job key"); the error names it and the path.
[[nodiscard]] Result<std::string> read_small_file(const std::string& path, const std::string& what,
                                                  std::size_t most);

}  // namespace thalweg::net
