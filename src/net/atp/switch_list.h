// The switches that a communicator may use, as CommunicatorOptions::atp_switch and THALWEG_SWITCH
// name them (docs/switch.md, "Several switches").
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::net {

inline constexpr std::size_t kMaxListedSwitches = 64;

struct ListedSwitch {
  std::string name;     // of the switch in the topology; empty: not told
  std::string address;  // "host:port" of its control socket
  // For messages.
  [[nodiscard]] std::string text() const { return name.empty() ? address : name + "=" + address; }
  bool operator==(const ListedSwitch&) const = default;
};

// Reads "host:port", or "name=host:port,name=host:port". Lines may separate the entries instead of
// commas; empty lines and lines that begin with '#' are ignored. An empty text is an empty list.
// Names and addresses must be there once each.
[[nodiscard]] Result<std::vector<ListedSwitch>> parse_switch_list(const std::string& text);

// Whether the text is the path of a file: it has a '/', and no '='.
[[nodiscard]] bool is_switch_file(const std::string& text);
// The same as parse_switch_list(), and if the text is the path of a file, the list in that file.
[[nodiscard]] Result<std::vector<ListedSwitch>> read_switch_list(const std::string& text);

}  // namespace thalweg::net
