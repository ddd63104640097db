// An anonymous file in memory. A child process can read or write it while no other process moves
// the bytes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "net/io/fd.h"

namespace thalweg::launch {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}

  // Negative if the system refused to make the file; errno then has the cause.
  [[nodiscard]] int descriptor() const { return fd_.get(); }

  // Writes the text and seeks back to the start. Returns false on an error.
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
  net::Fd fd_;
};

}  // namespace thalweg::launch
