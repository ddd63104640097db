// A pipe that started programs do not inherit, and a function that reads one to its end.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include <thalweg/result.h>

#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::launch {

struct Pipe {
  net::Fd read;
  net::Fd write;

  static Result<Pipe> make() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return net::system_error("cannot make a pipe", errno);
    return Pipe{net::Fd(ends[0]), net::Fd(ends[1])};
  }
};

// Reads until the other end is closed.
inline std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = read(fd, block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace thalweg::launch
