// The hosts of a job and which ranks run where.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::launch {

inline constexpr int kMaxSlots = 4096;  // ranks on one host

struct RunHost {
  std::string name;  // for ssh; may include a user, as in "me@host"
  int slots = 1;     // the most ranks on this host
  bool operator==(const RunHost&) const = default;
};

// Parses "h1:4,h2": names, each with its number of slots; 1 if none is given.
Result<std::vector<RunHost>> hosts_from_list(std::string_view text);
// Parses lines of "name slots=4", or "name" for one slot; "#" begins a comment. `source` is the
// file's name in errors.
Result<std::vector<RunHost>> hosts_from_file(std::string_view text, const std::string& source);

// The hosts of the first `ranks` slots, each with the slots it uses; 0: all slots. It is an error
// if there are fewer slots.
Result<std::vector<RunHost>> hosts_for(const std::vector<RunHost>& hosts, int ranks);

}  // namespace thalweg::launch
