#include "net/job/slurm.h"

#include <algorithm>
#include <charconv>

namespace thalweg::net {
namespace {

// Takes a number from the front of `text`.
std::optional<int> take_whole_number(std::string_view& text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

}  // namespace

std::string slurm_first_host(std::string_view list) {
  std::string host;
  // A name may have several ranges, as in rack[1-2]node[01-16].
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) return {};
    const std::string_view ranges = list.substr(at + 1, close - at - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of(",-"));
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (first.empty() || !std::ranges::all_of(first, digit)) return {};
    host += first;
    at = close + 1;
  }
  return host;
}

std::optional<int> slurm_tasks_of_node(std::string_view list, int node) {
  while (true) {
    const std::optional<int> tasks = take_whole_number(list);
    if (!tasks) return std::nullopt;
    std::optional<int> nodes = 1;
    if (take(list, "(x")) {
      nodes = take_whole_number(list);
      if (!nodes || !take(list, ")")) return std::nullopt;
    }
    if (node < *nodes) return *tasks > 0 ? tasks : std::nullopt;
    node -= *nodes;
    if (!take(list, ",")) return std::nullopt;
  }
}

}  // namespace thalweg::net
