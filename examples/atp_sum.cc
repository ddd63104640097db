// Sums integers over all processes of a job through a switch, again and again, and compares every
// result with the serial sum, bit for bit.
//
//   thalweg switch & THALWEG_SWITCH=127.0.0.1:7700 thalweg run -n 3 --
//   build/release/examples/atp_sum [iterations [elements]]
//
// two_jobs_one_switch.sh runs it on a lossy network, and kills the switch.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <thalweg/communicator.h>

namespace {

// What `rank` contributes: any numbers, the same whenever they are asked for.
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
  const auto elements = static_cast<std::size_t>(argc > 2 ? std::atoll(argv[2]) : 100'000);

  thalweg::CommunicatorOptions options;
  options.transport = thalweg::Transport::kAtp;
  options.atp_servers = 1;
  const auto all = thalweg::Communicator::create(options);
  if (!all.ok()) {
    std::fprintf(stderr, "%s\n", all.error().message().c_str());
    return 1;
  }
  const int rank = all->rank();
  std::vector<std::int32_t> values(elements);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (std::size_t i = 0; i < elements; ++i) values[i] = contribution(rank, iteration, i);
    const auto status = all->allreduce(thalweg::TensorSpan::of(values), {});
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
    std::printf("iteration %d exact\n", iteration);
    std::fflush(stdout);
  }
  std::printf("rank %d: %d sums of %zu elements, all exact\n", rank, iterations, elements);
  return 0;
}
