// The hosts of a job and which ranks run where.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

inline constexpr int kMaxSlots = 4096;  // of one host

struct RunHost {
  std::string name;  // as ssh takes it: may have a user, "me@host"
  int slots = 1;     // ranks that it takes
  bool operator==(const RunHost&) const = default;
};

// "h1:4,h2": names, each with its slots or one.
Result<std::vector<RunHost>> hosts_from_list(std::string_view text);
// Lines of "name slots=4", or "name" for one; "#" begins a comment. `source` names it in errors.
Result<std::vector<RunHost>> hosts_from_file(std::string_view text, const std::string& source);

// The first `ranks` slots in order, hosts that get none left out; 0: all slots. An error if there
// are fewer.
Result<std::vector<RunHost>> hosts_for(const std::vector<RunHost>& hosts, int ranks);

}  // namespace thalweg
