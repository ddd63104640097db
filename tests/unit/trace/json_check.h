// Checks whether a text is JSON, strictly by RFC 8259.
#pragma once

#include <string_view>

namespace thalweg::trace {

bool is_json(std::string_view text);

}  // namespace thalweg::trace
