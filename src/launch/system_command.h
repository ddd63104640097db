// Runs the system's tools that set up networks: ip, tc, nft.
#pragma once

#include <string>

#include <thalweg/result.h>

namespace thalweg::launch {

// Runs `line`, whose words must not contain quotes or blanks. `input`: the tool's standard input.
// It is an error if the tool fails; the error includes its output.
[[nodiscard]] Status system_command(const std::string& line, const std::string& input = {});

}  // namespace thalweg::launch
