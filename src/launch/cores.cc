#include "launch/cores.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <tuple>

namespace thalweg::launch {
namespace {

// The number at the beginning of a file about a core; 0 if there is none.
int topology_of(int core, const char* name) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", core, name));
  int number = 0;
  file >> number;
  return number;
}

}  // namespace

const char* name_of(Binding binding) { return binding == Binding::kCore ? "core" : "none"; }

Result<std::optional<Binding>> parse_binding(const std::string& text) {
  if (text.empty()) return std::optional<Binding>();
  for (const Binding binding : {Binding::kCore, Binding::kNone}) {
    if (text == name_of(binding)) return std::optional(binding);
  }
  return Error(fmt::format("--bind: '{}' is not allowed: core or none", text));
}

std::vector<int> usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  // A core, after the number of its socket and of the first thread of its core.
  std::vector<std::tuple<int, int, int>> found;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(static_cast<std::size_t>(core), &allowed)) continue;
    found.emplace_back(topology_of(core, "physical_package_id"),
                       topology_of(core, "thread_siblings_list"), core);
  }
  std::ranges::sort(found);
  std::vector<int> cores;
  for (const auto& place : found) cores.push_back(std::get<2>(place));
  return cores;
}

std::vector<std::vector<int>> equal_shares(std::span<const int> cores, int count) {
  std::vector<std::vector<int>> shares;
  const auto parts = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = cores.size() * i / parts;
    const std::size_t end = cores.size() * (i + 1) / parts;
    const std::span<const int> share = cores.subspan(begin, end - begin);
    shares.emplace_back(share.begin(), share.end());
  }
  return shares;
}

Result<std::vector<std::vector<int>>> cores_of_ranks(const std::optional<Binding>& binding,
                                                     int count) {
  if (binding == Binding::kNone) return std::vector<std::vector<int>>();
  const std::vector<int> cores = usable_cores();
  if (cores.size() >= static_cast<std::size_t>(count)) return equal_shares(cores, count);
  if (!binding) return std::vector<std::vector<int>>();
  return Error(fmt::format(
      "--bind: core needs a core for each rank, but there are {} ranks and {} cores: write none",
      count, cores.size()));
}

}  // namespace thalweg::launch
