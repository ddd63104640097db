// Sums integers over all processes of a job through a switch, again and again, and compares every
// result with the serial sum, bit for bit.
//
//   thalweg switch & THALWEG_SWITCH=127.0.0.1:7700 thalweg run -n 3 --
//   build/release/examples/atp_sum [iterations [elements [atp|tcp|dlcp [servers]]]]
//
// `servers`: how many of the first ranks are servers; 0: all ranks; default: 1. Times are those of
// this rank's allreduce alone. two_jobs_one_switch.sh runs this program on a lossy network and
// kills the switch.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

namespace {

// Element i of the contribution of `rank`: a pseudorandom number that only depends on the
// arguments.
std::int32_t contribution(int rank, int iteration, std::size_t i) {
  std::uint64_t x =
      (static_cast<std::uint64_t>(rank) << 48) ^ (static_cast<std::uint64_t>(iteration) << 32) ^ i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  constexpr int kHeadroom = 6;  // sums of up to 64 ranks fit
  return static_cast<std::int32_t>(x >> 32) >> kHeadroom;
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
  const int count = argc > 2 ? std::atoi(argv[2]) : 100'000;
  const std::string_view transport = argc > 3 ? argv[3] : "atp";
  const int servers = argc > 4 ? std::atoi(argv[4]) : 1;
  constexpr std::pair<std::string_view, thalweg::Transport> kTransports[] = {
      {"atp", thalweg::Transport::kAtp},
      {"tcp", thalweg::Transport::kTcp},
      {"dlcp", thalweg::Transport::kDlcp}};
  const auto* const way =
      std::ranges::find(kTransports, transport, [](const auto& each) { return each.first; });
  if (iterations < 1 || count < 1 || servers < 0 || way == std::end(kTransports)) {
    std::fprintf(stderr,
                 "iterations and elements: 1 or more; atp, tcp or dlcp; servers: 0 or more\n");
    return 2;
  }
  const auto elements = static_cast<std::size_t>(count);

  thalweg::CommunicatorOptions options;
  options.transport = way->second;
  options.atp_servers = servers;
  const auto all = thalweg::Communicator::create(options);
  if (!all.ok()) {
    std::fprintf(stderr, "%s\n", all.error().message().c_str());
    return 1;
  }
  const int rank = all->rank();
  std::vector<std::int32_t> values(elements);
  std::vector<double> times_ms;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (std::size_t i = 0; i < elements; ++i) values[i] = contribution(rank, iteration, i);
    if (const auto together = all->barrier({}); !together.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, together.error().message().c_str());
      return 1;
    }
    const auto began = std::chrono::steady_clock::now();
    const auto status = all->allreduce(thalweg::TensorSpan::of(values), {});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    times_ms.push_back(took.count());
    if (!status.ok()) {
      std::fprintf(stderr, "rank %d, iteration %d: %s\n", rank, iteration,
                   status.error().message().c_str());
      return 1;
    }
    for (std::size_t i = 0; i < elements; ++i) {
      std::int32_t sum = 0;
      for (int r = 0; r < all->size(); ++r) sum += contribution(r, iteration, i);
      if (values[i] == sum) continue;
      std::fprintf(stderr, "rank %d, iteration %d, element %zu: %d instead of %d\n", rank,
                   iteration, i, values[i], sum);
      return 1;
    }
    std::printf("iteration %d exact, %.1f ms\n", iteration, took.count());
    std::fflush(stdout);
  }
  std::ranges::sort(times_ms);
  double sum_ms = 0;
  for (const double time_ms : times_ms) sum_ms += time_ms;
  std::printf(
      "rank %d: %d sums of %zu elements, all exact; mean %.1f ms, median %.1f, longest %.1f\n",
      rank, iterations, elements, sum_ms / iterations, times_ms[times_ms.size() / 2],
      times_ms.back());
  return 0;
}
