// How a parameter server is set up: the file of `thalweg ps --config` (docs/parameter-server.md).
#pragma once

#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "ps/parameter_table.h"

namespace thalweg {

struct PsConfig {
  std::string listen = "127.0.0.1:7900";  // "host:port" or "*:port"
  ParameterOptions parameters;

  // From YAML; errors name the file and the line.
  static Result<PsConfig> parse(std::string_view text, std::string_view source);
};

}  // namespace thalweg
