#include "net/collective/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "base/number.h"

namespace thalweg {
namespace {

constexpr std::size_t kMostCores = CPU_SETSIZE;

cpu_set_t no_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return set;
}

cpu_set_t all_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t i = 0; i < kMostCores; ++i) CPU_SET(i, &set);
  return set;
}

std::optional<cpu_set_t> affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::nullopt;
  return set;
}

// A list of the system's; none: it does not say.
std::optional<cpu_set_t> read_core_list(const std::string& name) {
  std::ifstream file("/sys/devices/system/cpu/" + name);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_core_list(line);
}

// When they were first asked for. Where others came or went later, no thread is moved.
const cpu_set_t& cores_online() {
  static const cpu_set_t online = read_core_list("online").value_or(no_cores());
  return online;
}

cpu_set_t read_cores_near(int core) {
  // The caches of a core are numbered from the first on.
  std::optional<cpu_set_t> near;
  for (int index = 0;; ++index) {
    const auto cores =
        read_core_list(fmt::format("cpu{}/cache/index{}/shared_cpu_list", core, index));
    if (!cores) break;
    near = cores;
  }
  // On some virtual machines every core has all caches for itself: that says nothing.
  return near && CPU_COUNT(&*near) > 1 ? *near : all_cores();
}

}  // namespace

std::optional<cpu_set_t> parse_core_list(std::string_view text) {
  cpu_set_t set = no_cores();
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = number_in<std::size_t>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : number_in<std::size_t>(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kMostCores) return std::nullopt;
    for (std::size_t i = *first; i <= *last; ++i) CPU_SET(i, &set);
  }
  return set;
}

cpu_set_t cores_near(int core) {
  static std::mutex mutex;
  static std::map<int, cpu_set_t> known;
  const std::lock_guard lock(mutex);
  if (const auto place = known.find(core); place != known.end()) return place->second;
  const cpu_set_t near = read_cores_near(core);
  known[core] = near;
  // It is the same for all of them.
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&near) < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &near)) known[i] = near;
  }
  return near;
}

void learn_cores() {
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &cores_online())) static_cast<void>(cores_near(i));
  }
}

bool may_run_anywhere() {
  const std::optional<cpu_set_t> allowed = affinity();
  return allowed && CPU_EQUAL(&*allowed, &cores_online());
}

bool move_thread(const cpu_set_t& near, const cpu_set_t& taken) {
  if (!may_run_anywhere()) return false;
  cpu_set_t there = no_cores();
  for (std::size_t i = 0; i < kMostCores; ++i) {
    if (CPU_ISSET(i, &cores_online()) && CPU_ISSET(i, &near) && !CPU_ISSET(i, &taken)) {
      CPU_SET(i, &there);
    }
  }
  if (CPU_COUNT(&there) == 0 || sched_setaffinity(0, sizeof(there), &there) != 0) return false;
  // Somebody else may have restricted it meanwhile.
  const std::optional<cpu_set_t> after = affinity();
  if (after && !CPU_EQUAL(&*after, &there)) return true;
  // All of them, not only those that there are now. The thread stays where it is as long as the
  // system sees no reason to move it.
  const cpu_set_t all = all_cores();
  if (sched_setaffinity(0, sizeof(all), &all) == 0) return true;
  return sched_setaffinity(0, sizeof(cpu_set_t), &cores_online()) == 0;
}

}  // namespace thalweg
