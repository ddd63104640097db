#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "topology/load.h"

namespace thalweg {
namespace {

constexpr double kQuietSeconds = 2;
constexpr double kSecondsBetweenLines = 5;
constexpr double kSecondsBetweenRedraws = 0.1;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The characters of UTF-8 text, as far as a terminal's columns are concerned.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

Error io_error(std::string_view doing, const std::string& path) {
  return Error(fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

}  // namespace

void exit_with_error(const Error& error) {
  std::cerr << "thalweg: " << error.message() << '\n';
  throw CLI::RuntimeError(kExitBadInput);
}

void exit_unless_zero(int code) {
  if (code != 0) throw CLI::RuntimeError(code);
}

std::optional<Error> missing_subcommand(const CLI::App& program) {
  const CLI::App* app = &program;
  std::string path = program.get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    path += " " + app->get_name();
  }
  if (app->get_require_subcommand_min() == 0) return std::nullopt;
  std::vector<std::string> names;
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  const std::vector<std::string> rest = app->remaining();
  const std::string problem = rest.empty()
                                  ? "a subcommand is required"
                                  : fmt::format("'{}' is not one of its subcommands", rest.front());
  return Error(fmt::format("{}: {}; there are: {}", path, problem, fmt::join(names, ", ")));
}

Status print_now(std::string_view text) {
  if (std::cout << text << std::flush) return ok_status();
  return Error("cannot write to standard output");
}

Result<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error(fmt::format("cannot read {}: it is a folder", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return io_error("read", path);
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) return io_error("read", path);
  return std::move(text).str();
}

std::string system_setting(const char* path) {
  std::string value;
  std::ifstream(path) >> value;
  return value;
}

Status write_files(const std::vector<OutputFile>& files) {
  // A device, a pipe or a link to a file is written as it is: renaming over it would replace it.
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

Result<Topology> load_topology(const std::string& argument) {
  if (is_topology_shorthand(argument)) return topology_from_shorthand(argument);
  std::error_code ignored;
  if (!std::filesystem::exists(argument, ignored)) {
    return Error(
        fmt::format("--topology: '{}' is neither a file nor a shorthand such as "
                    "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G",
                    argument));
  }
  THALWEG_TRY(const std::string text, read_file(argument));
  return topology_from_file_text(text, argument);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      if (c > 0) text += "  ";
      text += c == 0 ? row[c] + padding : padding + row[c];
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }
  return text;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Progress::Progress()
    : next_(seconds_now() + kQuietSeconds), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::show(const std::string& what) {
  const double now = seconds_now();
  if (now < next_) return;
  next_ = now + (terminal_ ? kSecondsBetweenRedraws : kSecondsBetweenLines);
  shown_ = true;
  if (terminal_) {
    std::cerr << "\r\033[K" << what << " …" << std::flush;
  } else {
    std::cerr << what << '\n';
  }
}

}  // namespace thalweg
