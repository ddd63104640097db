#include "net/io/small_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// Other kinds of files than regular ones, in words.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a socket";
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, const std::string& what,
                                    std::size_t most) {
  const std::string doing = fmt::format("cannot read {} from {}", what, path);
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  const int refusal = errno;
  struct stat about{};
  // A socket cannot be opened (ENXIO), but can be asked about.
  if (file.valid() ? fstat(file.get(), &about) != 0 : stat(path.c_str(), &about) != 0) {
    return system_error(doing, errno);
  }
  if (!S_ISREG(about.st_mode)) {
    return Error(
        fmt::format("{}: it is {}; a regular file is allowed", doing, kind_of(about.st_mode)));
  }
  if (!file.valid()) return system_error(doing, refusal);
  // The size that the system states may be wrong: files of /proc have size 0, and a file may grow.
  std::string text(most + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), &text[size], text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(doing, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > most) {
    return Error(
        fmt::format("{}: it has more than {} bytes, the most that are allowed", doing, most));
  }
  text.resize(size);
  return text;
}

}  // namespace thalweg::net
