#include "lab/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/suggest.h"
#include "lab/home.h"
#include "net/io/fd.h"
#include "net/io/system.h"
#include "topology/builders.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

namespace fs = std::filesystem;

// How long to wait for the writer of a pipe.
constexpr Duration kWriterTime = Duration::milliseconds(10'000);
// A folder may hold any number of files; a suggestion need not look at all of them.
constexpr std::size_t kMaxFilesCompared = 10'000;

Error io_error(std::string_view doing, const std::string& path) {
  return Error(fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

Error too_large(const std::string& path) {
  return Error(fmt::format("cannot read {}: it has more than {} bytes, the most that are allowed",
                           path, kMaxInputFile));
}

// Reads to the end. A pipe that has a writer may take as long as it likes.
Result<std::string> read_open(int file, const std::string& path, bool pipe) {
  constexpr std::size_t kStep = std::size_t{1} << 16;
  const Time writer_by = net::monotonic_now() + kWriterTime;
  std::string text;
  bool written = !pipe;  // somebody has opened the pipe to write
  while (true) {
    const std::size_t had = text.size();
    text.resize(had + kStep);
    const ssize_t got = ::read(file, &text[had], kStep);
    const int why = errno;
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > kMaxInputFile) return too_large(path);
    if (got < 0 && why != EAGAIN && why != EINTR) {
      errno = why;
      return io_error("read", path);
    }
    written |= got != 0;
    if (got == 0 && written) return text;
    if (got > 0) continue;
    if (!written && net::monotonic_now() >= writer_by) {
      return Error(
          fmt::format("cannot read {}: it is a pipe, and nobody has begun to write to it within {}",
                      path, to_human(kWriterTime)));
    }
    // A pipe without a writer is never ready, and one whose writer has gone always is.
    pollfd ready{file, POLLIN, 0};
    constexpr int kLookMs = 20;
    if (poll(&ready, 1, kLookMs) > 0) written = true;
  }
}

// The files of a folder, in order; none if it cannot be read.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(folder, failure);
       !failure && entry != fs::directory_iterator() && files.size() < kMaxFilesCompared;
       entry.increment(failure)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// The kind of a shorthand that was mistyped, with the rest of it as it was.
std::string suggest_shorthand(const std::string& argument) {
  const std::string kind = argument.substr(0, argument.find(':'));
  std::vector<std::string> kinds;
  for (const topology::TopologyKind& one : topology::topology_kinds()) kinds.emplace_back(one.name);
  const std::optional<std::string> meant = nearest(kind, kinds);
  if (!meant) return "";
  return fmt::format("; did you mean '{}{}'?", *meant, argument.substr(kind.size()));
}

}  // namespace

std::string find_file(const std::string& argument, const std::string& folder) {
  const fs::path home = home_folder();
  if (argument.empty() || is_file(argument)) return argument;
  for (const fs::path& path : {home / argument, home / folder / argument}) {
    if (is_file(path)) return path.string();
  }
  for (const fs::path& path : files_in(home / folder)) {
    if (path.stem() == argument) return path.string();
  }
  return argument;
}

std::string suggest_file(const std::string& argument, const std::string& folder) {
  const fs::path given = argument;
  if (is_file(given)) return "";
  const fs::path beside = given.has_parent_path() ? given.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (const fs::path& path : files_in(beside)) names.push_back(path.filename());
  if (const auto meant = nearest(given.filename().string(), names)) {
    return fmt::format("; did you mean '{}'?", fs::path(given).replace_filename(*meant).string());
  }
  if (folder.empty()) return "";
  names.clear();
  const std::string stem = given.stem();
  for (const fs::path& path : files_in(fs::path(home_folder()) / folder)) {
    if (path.stem() == stem) return fmt::format("; did you mean '{}'?", stem);
    names.push_back(path.stem());
  }
  return did_you_mean(stem, names);
}

Result<std::string> read_file(const std::string& path, const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error(fmt::format("cannot read {}: it is a folder", path));
  }
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const net::Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) {
    const Error error = io_error("read", path);
    return Error(error.message() + suggest_file(path, folder));
  }
  struct stat about{};
  if (fstat(file.get(), &about) != 0) return io_error("read", path);
  if (S_ISBLK(about.st_mode) || (S_ISCHR(about.st_mode) && isatty(file.get()) == 0)) {
    return Error(fmt::format("cannot read {}: it is a device; a file or a pipe is allowed", path));
  }
  if (S_ISREG(about.st_mode) && about.st_size > static_cast<off_t>(kMaxInputFile)) {
    return too_large(path);
  }
  return read_open(file.get(), path, S_ISFIFO(about.st_mode));
}

std::string system_setting(const char* path) {
  std::string value;
  std::ifstream(path) >> value;
  return value;
}

Status write_files(const std::vector<OutputFile>& files) {
  // A device, a pipe or a symbolic link is written in place, because a rename would replace it.
  const auto in_place = [](const OutputFile& file) {
    std::error_code ignored;
    const auto kind = std::filesystem::symlink_status(file.path, ignored).type();
    return kind != std::filesystem::file_type::regular &&
           kind != std::filesystem::file_type::not_found;
  };
  const auto written_to = [&](const OutputFile& file) {
    return in_place(file) ? file.path : file.path + ".part";
  };
  const auto fail = [&](const OutputFile& failed) {
    const Error error = io_error("write", failed.path);
    for (const OutputFile& file : files) {
      if (!in_place(file)) std::remove(written_to(file).c_str());
    }
    return error;
  };
  for (const OutputFile& file : files) {
    std::ofstream out(written_to(file), std::ios::binary | std::ios::trunc);
    out << file.content;
    out.close();
    if (!out) return fail(file);
  }
  for (const OutputFile& file : files) {
    if (in_place(file)) continue;
    if (std::rename(written_to(file).c_str(), file.path.c_str()) != 0) return fail(file);
  }
  return ok_status();
}

Result<topology::Topology> load_topology(const std::string& argument) {
  if (topology::is_topology_shorthand(argument)) return topology::topology_from_shorthand(argument);
  const std::string path = find_file(argument, "topologies");
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    std::string suggestion = suggest_shorthand(argument);
    if (suggestion.empty()) suggestion = suggest_file(argument, "topologies");
    return Error(
        fmt::format("--topology: '{}' is neither a file nor a shorthand such as "
                    "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G{}",
                    argument, suggestion));
  }
  THALWEG_TRY(const std::string text, read_file(path));
  return topology::topology_from_file_text(text, path);
}

}  // namespace thalweg::lab
