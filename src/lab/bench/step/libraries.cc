#include "lab/bench/step/libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

namespace thalweg::lab::step {
namespace {

// Whether the words after the first "+" of the name are good; takes them over.
bool add_words(const std::string& name, std::size_t begin, Library& library) {
  while (begin != std::string::npos) {
    const std::size_t end = name.find('+', begin + 1);
    const std::string word =
        name.substr(begin + 1, end == std::string::npos ? end : end - begin - 1);
    bool* const added = word == "bound"       ? &library.bounded
                        : word == "straggler" ? &library.straggling
                        : word == "priority"  ? &library.prioritized
                                              : nullptr;
    if (added == nullptr || *added) return false;
    *added = true;
    begin = end;
  }
  const bool can_lose =
      library.transport == Transport::kDlcp || library.transport == Transport::kAuto;
  const bool can_hurry = library.transport != Transport::kAtp;
  const bool can_leave = library.transport == Transport::kTcp && library.scheme.empty();
  return (can_lose || !library.bounded) && (can_leave || !library.straggling) &&
         (can_hurry || !library.prioritized);
}

}  // namespace

std::vector<std::string> own_ways() { return {"tcp", "dlcp", "atp", "rat", "ps", "auto"}; }
std::vector<std::string> peers() { return {"gloo"}; }

Result<Library> library_of(const std::string& name) {
  Library library{.name = name};
  if (name == "gloo") {
    library.gloo = true;
    return library;
  }
  const std::size_t plus = name.find('+');
  const std::string way = name.substr(0, plus);
  if (way == "dlcp") library.transport = Transport::kDlcp;
  if (way == "atp") library.transport = Transport::kAtp;
  if (way == "auto") library.transport = Transport::kAuto;
  if (way == "rat" || way == "ps") library.scheme = way;
  library.knows_topology = way == "rat";
  const std::vector<std::string> ways = own_ways();
  if (std::ranges::find(ways, way) != ways.end() && add_words(name, plus, library)) return library;
  return Error(fmt::format(
      "'{}' is not a library: write {}, and behind it +priority (not for atp), +bound (only for "
      "dlcp and auto) or +straggler (only for tcp), as in dlcp+bound+priority",
      name, fmt::join(ways, ", ")));
}

}  // namespace thalweg::lab::step
