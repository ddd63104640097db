// Formats the values of event fields, for all writers.
#pragma once

#include <string>
#include <string_view>

#include "base/units.h"

namespace thalweg::trace {

// Microseconds with six decimals, so that no picosecond is lost.
void append_value(std::string& out, Duration duration);
inline void append_value(std::string& out, Time time) { append_value(out, time.since_start()); }
void append_value(std::string& out, Bytes size);
// The shortest form that reads back as the same number. Requires a finite number.
void append_value(std::string& out, double number);
// In quotes, escaped as in JSON. Bytes that are not UTF-8 become U+FFFD.
void append_value(std::string& out, std::string_view text);
// Requires a valid id.
void append_id(std::string& out, std::int32_t id);
template <class Tag>
void append_value(std::string& out, Id<Tag> id) {
  append_id(out, id.value());
}

// Whether a field has a value, and so is written.
template <class Value>
bool is_present(const Value& /*value*/) {
  return true;
}
template <class Tag>
bool is_present(Id<Tag> id) {
  return id.valid();
}
inline bool is_present(std::string_view text) { return !text.empty(); }

}  // namespace thalweg::trace
