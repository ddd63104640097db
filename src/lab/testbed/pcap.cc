#include "lab/testbed/pcap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "net/io/system.h"

namespace thalweg::lab {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint32_t kMagicOfNanoseconds = 0xa1b23c4d;
constexpr std::uint32_t kVersion2Point4 = 2 | 4 << 16;
constexpr std::uint32_t kLongestFrame = 1 << 18;
constexpr std::uint32_t kEthernet = 1;

}  // namespace

Result<PcapFile> PcapFile::create(const std::string& path) {
  // The reader of a pipe could hold up the network. Opening a pipe without a reader fails, and one
  // with a reader is refused below.
  net::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file.valid()) return net::system_error(fmt::format("cannot write {}", path), errno);
  struct stat about = {};
  if (fstat(file.get(), &about) != 0 || S_ISFIFO(about.st_mode)) {
    return Error(fmt::format("{} is a pipe: write to a file", path));
  }
  PcapFile made(std::move(file));
  made.append(std::array<std::uint32_t, 6>{kMagicOfNanoseconds, kVersion2Point4, 0, 0,
                                           kLongestFrame, kEthernet});
  return made;
}

void PcapFile::append(std::span<const std::uint32_t> words) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(words.data());
  buffer_.insert(buffer_.end(), bytes, bytes + words.size_bytes());
}

void PcapFile::add(std::int64_t when_ns, std::span<const std::uint8_t> frame) {
  if (!file_.valid())
    return;  // the file failed before: buffer_ is not empty, and flush() returns false
  const auto size = static_cast<std::uint32_t>(frame.size());
  append(std::array<std::uint32_t, 4>{static_cast<std::uint32_t>(when_ns / kNsPerSecond),
                                      static_cast<std::uint32_t>(when_ns % kNsPerSecond), size,
                                      size});
  buffer_.insert(buffer_.end(), frame.begin(), frame.end());
  if (buffer_.size() > kBufferBytes) flush();
}

bool PcapFile::flush() {
  if (!file_.valid()) return buffer_.empty();
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t written = write(file_.get(), buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      file_.reset();
      return false;
    }
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
  return true;
}

}  // namespace thalweg::lab
