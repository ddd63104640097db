// The two ends of a pipe. Programs that are started do not inherit them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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

}  // namespace thalweg
