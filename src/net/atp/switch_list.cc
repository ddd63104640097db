#include "net/atp/switch_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "net/io/address.h"
#include "net/io/small_file.h"

namespace thalweg::net {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

Result<ListedSwitch> entry_in(const std::string& text) {
  ListedSwitch entry{.name = {}, .address = text};
  const std::size_t sign = text.rfind('=');
  if (sign != std::string::npos) {
    entry.name = trimmed(text.substr(0, sign));
    entry.address = trimmed(text.substr(sign + 1));
  }
  if ((sign != std::string::npos && entry.name.empty()) || !HostPort::parse(entry.address).ok()) {
    return Error(fmt::format("'{}'; host:port or name=host:port is allowed", text));
  }
  return entry;
}

}  // namespace

Result<std::vector<ListedSwitch>> parse_switch_list(const std::string& text) {
  std::vector<ListedSwitch> list;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', at), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", at);
    const bool comment = first < line_end && text[first] == '#';
    const std::size_t end = comment ? line_end : std::min(text.find(',', at), line_end);
    const std::string part = comment ? std::string() : trimmed(text.substr(at, end - at));
    at = end + 1;
    if (part.empty() && (comment || end == line_end)) continue;
    THALWEG_TRY(ListedSwitch entry, entry_in(part));
    const bool twice = std::ranges::any_of(list, [&](const ListedSwitch& other) {
      return other.address == entry.address || (!entry.name.empty() && other.name == entry.name);
    });
    if (twice) return Error(fmt::format("'{}': its name or address is there twice", part));
    if (list.size() == kMaxListedSwitches) {
      return Error(fmt::format("more than {} switches", kMaxListedSwitches));
    }
    list.push_back(std::move(entry));
  }
  if (list.size() < 2) return list;
  for (const ListedSwitch& entry : list) {
    if (entry.name.empty()) {
      return Error(fmt::format("'{}' has no name; several switches need name=host:port each",
                               entry.address));
    }
  }
  return list;
}

bool is_switch_file(const std::string& text) {
  return text.find('/') != std::string::npos && text.find('=') == std::string::npos;
}

Result<std::vector<ListedSwitch>> read_switch_list(const std::string& text) {
  if (!is_switch_file(text)) return parse_switch_list(text);
  THALWEG_TRY(const std::string lines, read_small_file(text, "the list of switches", kMaxListFile));
  Result<std::vector<ListedSwitch>> list = parse_switch_list(lines);
  if (!list.ok()) return list.error().within(text);
  return list;
}

}  // namespace thalweg::net
