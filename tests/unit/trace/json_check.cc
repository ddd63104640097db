#include "trace/json_check.h"

#include <cctype>

namespace thalweg::trace {
namespace {

// A recursive-descent recognizer; each function consumes what it names, or returns false.
class Recognizer {
 public:
  explicit Recognizer(std::string_view text) : rest_(text) {}

  bool document() { return value() && (skip_space(), rest_.empty()); }

 private:
  bool value() {
    skip_space();
    if (rest_.empty()) return false;
    switch (rest_.front()) {
      case '{':
        return sequence('}', [this] { return string() && take(':') && value(); });
      case '[':
        return sequence(']', [this] { return value(); });
      case '"':
        return string();
      default:
        return word("true") || word("false") || word("null") || number();
    }
  }

  template <class Item>
  bool sequence(char close, Item item) {
    rest_.remove_prefix(1);
    if (take(close)) return true;
    do {
      if (!item()) return false;
    } while (take(','));
    return take(close);
  }

  bool string() {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    for (int i = 0; i < 4; ++i) {
      if (rest_.empty() || std::isxdigit(static_cast<unsigned char>(rest_.front())) == 0) {
        return false;
      }
      rest_.remove_prefix(1);
    }
    return true;
  }

  bool number() {
    word("-");
    if (!word("0") && !digits()) return false;
    if (word(".") && !digits()) return false;
    if (word("e") || word("E")) {
      if (!word("+")) word("-");
      return digits();
    }
    return true;
  }

  bool digits() {
    const std::size_t before = rest_.size();
    while (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front())) != 0) {
      rest_.remove_prefix(1);
    }
    return rest_.size() < before;
  }

  bool word(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  bool take(char c) {
    skip_space();
    return word(std::string_view(&c, 1));
  }

  void skip_space() {
    const std::size_t end = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
  }

  std::string_view rest_;
};

}  // namespace

bool is_json(std::string_view text) { return Recognizer(text).document(); }

}  // namespace thalweg::trace
