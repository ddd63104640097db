// An anonymous file in memory: what a child process reads or writes without anybody pumping.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "net/fd.h"

namespace thalweg {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}

  // Negative: the system has refused it, and errno says why.
  [[nodiscard]] int descriptor() const { return fd_.get(); }

  // Leaves the place to read from at the start.
  bool fill(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t written = write(descriptor(), text.data() + done, text.size() - done);
      if (written < 0) return false;
      done += static_cast<std::size_t>(written);
    }
    return lseek(descriptor(), 0, SEEK_SET) == 0;
  }

  [[nodiscard]] std::string content() const {
    std::string text;
    std::array<char, 1 << 16> block{};
    for (off_t at = 0;;) {
      const ssize_t got = pread(descriptor(), block.data(), block.size(), at);
      if (got <= 0) return text;
      text.append(block.data(), static_cast<std::size_t>(got));
      at += got;
    }
  }

 private:
  Fd fd_;
};

}  // namespace thalweg
