// Whether a text is JSON by the letter of RFC 8259.
#pragma once

#include <string_view>

namespace thalweg {

bool is_json(std::string_view text);

}  // namespace thalweg
