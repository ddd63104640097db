// The two ends of a pipe, and what comes out of one. Programs that are started do not inherit them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include <thalweg/result.h>

#include "net/fd.h"
#include "net/system.h"

namespace thalweg {

struct Pipe {
  Fd read;
  Fd write;

  static Result<Pipe> make() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
  }
};

// Until the other end is closed.
inline std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = read(fd, block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace thalweg
