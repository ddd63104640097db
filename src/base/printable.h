// Text that others wrote, made safe for a terminal or a log. Otherwise it could move the cursor,
// change the window's title, begin a line of its own, or reverse the order of what follows.
#pragma once

#include <string>
#include <string_view>

namespace thalweg {

// The text with everything a terminal might obey written as \xNN, byte by byte: control characters
// (also DEL and those above 0x7f), marks that change the direction of writing or separate lines,
// and bytes that are not UTF-8. Everything else stays, so printable(printable(t)) is printable(t).
[[nodiscard]] std::string printable(std::string_view text);

// The same, but line feeds stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

}  // namespace thalweg
