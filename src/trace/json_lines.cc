#include <ostream>

#include "trace/format.h"
#include "trace/writer.h"

namespace thalweg::trace {

void JsonLinesWriter::write(const Event& event) {
  line_.clear();
  std::visit(
      [&](const auto& typed) {
        line_ += "{\"event\":";
        append_value(line_, typed.kName);
        typed.for_each_field([&](std::string_view key, const auto& value) {
          if (!is_present(value)) return;
          line_ += ",\"";
          line_ += key;
          line_ += "\":";
          append_value(line_, value);
        });
      },
      event);
  line_ += "}\n";
  out_ << line_;
}

}  // namespace thalweg::trace
