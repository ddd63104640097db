#include "net/dlcp/record_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "net/io/system.h"
#include "proto/dlcp/record/record_codec.h"

namespace thalweg::net {

Result<RecordFile> RecordFile::open(const std::string& path) {
  constexpr mode_t kMode = 0644;
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (!fd.valid()) return system_error(fmt::format("cannot write {}", path), errno);
  RecordFile file(std::move(fd));
  if (!file.write_all(proto::recording_start())) {
    return system_error(fmt::format("cannot write {}", path), errno);
  }
  return file;
}

bool RecordFile::write(std::span<const std::byte> content) {
  block_.clear();
  proto::append_block(content, block_);
  return write_all(block_);
}

bool RecordFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace thalweg::net
