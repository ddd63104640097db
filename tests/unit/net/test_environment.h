// Variables of the environment that a test sets and takes back.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "net/io/system.h"

namespace thalweg::net {

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// A job key in a file, which THALWEG_KEY_FILE names.
class KeyFile {
 public:
  explicit KeyFile(char digit = 'd')
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("thalweg-key-{}", random_number())) {
    std::ofstream(path_) << std::string(32, digit) << "\n";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
    variable_.emplace("THALWEG_KEY_FILE", path_);
  }
  ~KeyFile() { std::filesystem::remove(path_); }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;

 private:
  std::filesystem::path path_;
  std::optional<Variable> variable_;
};

}  // namespace thalweg::net
