// The file into which one connection is recorded.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/fd.h"

namespace thalweg {

class RecordFile {
 public:
  // Replaces what was there.
  static Result<RecordFile> open(const std::string& path);

  // A block of records. What the disk does not take ends the recording: false, and errno says why.
  bool write(std::span<const std::byte> content);

 private:
  explicit RecordFile(Fd fd) : fd_(std::move(fd)) {}
  bool write_all(std::span<const std::byte> bytes);

  Fd fd_;
  std::vector<std::byte> block_;
};

}  // namespace thalweg
