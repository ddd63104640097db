// What the subcommands share: exit codes, files, the topology argument, tables, progress.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg {

// 0: done. 1: the answer is no (a plan is wrong). 2: the input is bad.
inline constexpr int kExitNo = 1;
inline constexpr int kExitBadInput = 2;

// Makes `body`, a function that returns a Result of the exit code, what the subcommand does. An
// error is printed and ends the program with kExitBadInput.
template <class Body>
void on_run(CLI::App& app, Body body);
[[noreturn]] void exit_with_error(const Error& error);
void exit_unless_zero(int code);

// If a subcommand was due and none came: the word that came instead, and those there are.
[[nodiscard]] std::optional<Error> missing_subcommand(const CLI::App& program);

// To standard output, at once: of a command that goes on, somebody may wait for it.
Status print_now(std::string_view text);
Result<std::string> read_file(const std::string& path);
// The first word of a file below /proc or /sys; empty if there is none.
std::string system_setting(const char* path);

// A file to be written once everything else has succeeded.
struct OutputFile {
  std::string path;
  std::string content;
};
// Writes all of them, each to a temporary name first, so that no reader sees half a file.
Status write_files(const std::vector<OutputFile>& files);

// A shorthand or the path of a topology file.
Result<Topology> load_topology(const std::string& argument);

// Columns as wide as they need; the first is left-aligned, the others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// Processor time of this thread: what other programs take of the core does not count.
double processor_seconds();

// What a long command is at, on stderr: a line that is overwritten on a terminal, a plain line
// every some seconds otherwise, and nothing at all before it has taken two seconds.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& what);

 private:
  double next_ = 0;  // when to say something again
  bool terminal_ = false;
  bool shown_ = false;
};

template <class Body>
void on_run(CLI::App& app, Body body) {
  app.callback([body = std::move(body)] {
    const Result<int> result = body();
    if (!result.ok()) exit_with_error(result.error());
    exit_unless_zero(*result);
  });
}

}  // namespace thalweg
