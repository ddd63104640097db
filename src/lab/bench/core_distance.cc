#include "lab/bench/core_distance.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "net/io/system.h"

namespace thalweg::lab {
namespace {

constexpr int kTries = 5;
constexpr int kRounds = 1000;

std::vector<std::size_t> cores_of_this_process() {
  std::vector<std::size_t> cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

bool stay_on(std::size_t core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  return sched_setaffinity(0, sizeof(only), &only) == 0;
}

// Waits until `turn` is `mine`. Yields now and then: while another process has the other core, the
// wait is long, and others may use this one.
void await(const std::atomic<int>& turn, int mine) {
  for (int looks = 0; turn.load(std::memory_order_acquire) != mine; ++looks) {
    if (looks % 4096 == 4095) sched_yield();
  }
}

}  // namespace

std::optional<Duration> core_distance() {
  const std::vector<std::size_t> cores = cores_of_this_process();
  if (cores.size() < 2) return std::nullopt;
  std::atomic<int> turn = 0;
  std::array<Duration, kTries> tries;
  std::atomic<bool> apart = true;
  std::thread there([&] {
    if (!stay_on(cores[1])) apart = false;
    for (int i = 0; i < kTries * kRounds; ++i) {
      await(turn, 2 * i + 1);
      turn.store(2 * i + 2, std::memory_order_release);
    }
  });
  std::thread here([&] {
    if (!stay_on(cores[0])) apart = false;
    for (int i = 0; i < kTries; ++i) {
      const Time start = net::monotonic_now();
      for (int k = i * kRounds; k < (i + 1) * kRounds; ++k) {
        turn.store(2 * k + 1, std::memory_order_release);
        await(turn, 2 * k + 2);
      }
      tries[static_cast<std::size_t>(i)] = (net::monotonic_now() - start) / kRounds;
    }
  });
  here.join();
  there.join();
  if (!apart) return std::nullopt;
  return *std::ranges::min_element(tries);
}

}  // namespace thalweg::lab
