// How commands print tables, and how they measure their processor time. How they show colour and
// progress: terminal.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

// Writes the text to standard output and flushes it, because another program may wait for a line of
// a command that goes on. Fails if it cannot be written.
Status print_now(std::string_view text);

// The rows as lines of text, with columns as wide as they need. Cells may hold what others wrote:
// control characters in them are escaped (base/printable.h). The first column is left-aligned,
// the others are right-aligned. If standard output shows colour, the first row is bold.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// Processor time of this thread, in seconds. Time in which other programs have the core does not
// count.
double processor_seconds();

}  // namespace thalweg::lab
