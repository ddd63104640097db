// Reading and writing of files, and the topology argument that many commands take.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg::lab {

// The most that is read of one file.
inline constexpr std::size_t kMaxInputFile = std::size_t{1} << 30;  // bytes

// The whole file or pipe. A device, a folder, or more than kMaxInputFile bytes is an error, and so
// is a pipe to which nobody has begun to write within 10 s. The error names the path and, if there
// is one, a file of nearly the same name, as suggest_file() finds it.
Result<std::string> read_file(const std::string& path, const std::string& folder = "");
// The first word of a file below /proc or /sys. Empty if the file is not there or is empty.
std::string system_setting(const char* path);

// A file to be written once everything else has succeeded.
struct OutputFile {
  std::string path;
  std::string content;
};
// Writes all files, each to a temporary name first, so that no reader sees half a file. If one
// cannot be written, the temporary files are removed.
Status write_files(const std::vector<OutputFile>& files);

// A file that the user names: `argument` itself, or else the project's own file of that path, or
// the one of that name, with or without its ending, in the project's folder (`topologies`,
// `models`, `scenarios`). If there is none, the argument as it is.
std::string find_file(const std::string& argument, const std::string& folder);
// "; did you mean …?" with a file of the same folder as `argument`, or of the project's folder
// (none if empty), that has nearly the same name; empty if there is none.
std::string suggest_file(const std::string& argument, const std::string& folder);

// Reads the topology that `argument` describes as a shorthand, or whose file it names.
Result<topology::Topology> load_topology(const std::string& argument);

}  // namespace thalweg::lab
