// The file that one connection is recorded in.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/fd.h"

namespace thalweg::net {

class RecordFile {
 public:
  // Replaces a file that exists.
  static Result<RecordFile> open(const std::string& path);

  // Appends a block of records. Returns false if the disk does not take it; errno then has the
  // cause, and the recording ends.
  bool write(std::span<const std::byte> content);

 private:
  explicit RecordFile(Fd fd) : fd_(std::move(fd)) {}
  bool write_all(std::span<const std::byte> bytes);

  Fd fd_;
  std::vector<std::byte> block_;
};

}  // namespace thalweg::net
