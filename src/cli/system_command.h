// Tools of the system that set up networks: ip, tc, nft.
#pragma once

#include <string>

#include <thalweg/result.h>

namespace thalweg {

// Words without quotes or blanks inside, and what the tool reads. The error says what it said.
[[nodiscard]] Status system_command(const std::string& line, const std::string& input = {});

}  // namespace thalweg
