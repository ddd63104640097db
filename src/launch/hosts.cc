#include "launch/hosts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/number.h"

namespace thalweg::launch {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// Takes the text before the first of `separators` off `text`, together with that separator.
std::string_view take_until(std::string_view& text, std::string_view separators) {
  const std::size_t end = std::min(text.find_first_of(separators), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

Result<RunHost> make_host(std::string_view name, std::string_view slots) {
  // ssh would read a name that begins with "-" as an option.
  if (name.empty() || name.front() == '-') {
    return Error(fmt::format("'{}' is no name of a host", name));
  }
  const std::optional<int> count = number_in<int>(slots);
  if (!count || *count < 1 || *count > kMaxSlots) {
    return Error(fmt::format("slots '{}' of host {}: must be a whole number from 1 to {}", slots,
                             name, kMaxSlots));
  }
  return RunHost{std::string(name), *count};
}

// Adds a host, or adds its slots to the host of the same name.
void add_host(std::vector<RunHost>& hosts, RunHost host) {
  const auto found = std::ranges::find(hosts, host.name, &RunHost::name);
  if (found == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    found->slots += host.slots;
  }
}

}  // namespace

Result<std::vector<RunHost>> hosts_from_list(std::string_view text) {
  std::vector<RunHost> hosts;
  do {
    std::string_view entry = take_until(text, ",");
    const bool counted = entry.find(':') != std::string_view::npos;
    const std::string_view name = take_until(entry, ":");
    THALWEG_TRY(RunHost host, make_host(name, counted ? entry : "1"));
    add_host(hosts, std::move(host));
  } while (!text.empty());
  return hosts;
}

Result<std::vector<RunHost>> hosts_from_file(std::string_view text, const std::string& source) {
  std::vector<RunHost> hosts;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = take_until(text, "\n");
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> words;
    while (!line.empty()) {
      const std::string_view word = take_until(line, kBlanks);
      if (!word.empty()) words.push_back(word);
    }
    if (words.empty()) continue;
    constexpr std::string_view kSlots = "slots=";
    const bool counted = words.size() == 2 && words[1].starts_with(kSlots);
    Result<RunHost> host =
        words.size() > 1 && !counted
            ? Error(fmt::format("'{}': write 'host' or 'host slots=N'", words[1]))
            : make_host(words[0], counted ? words[1].substr(kSlots.size()) : "1");
    if (!host.ok()) return host.error().within(fmt::format("{}: line {}", source, number));
    add_host(hosts, std::move(*host));
  }
  if (hosts.empty()) return Error(fmt::format("{}: names no host", source));
  return hosts;
}

Result<std::vector<RunHost>> hosts_for(const std::vector<RunHost>& hosts, int ranks) {
  if (ranks == 0) return hosts;
  std::vector<RunHost> used;
  int left = ranks;
  for (const RunHost& host : hosts) {
    const int here = std::min(left, host.slots);
    if (here > 0) used.push_back({host.name, here});
    left -= here;
  }
  if (left > 0) {
    return Error(fmt::format("-n: {} ranks, but --hosts has slots for {}", ranks, ranks - left));
  }
  return used;
}

}  // namespace thalweg::launch
