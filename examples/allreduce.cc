// Sums a vector over all processes of a job, again and again; when one of them dies, the others go
// on without it.
//
//   thalweg run -n 4 --keep-going -- build/release/examples/allreduce [iterations [elements
//   [seconds]]]
//
// Runs as well under torchrun, mpirun and srun: who it is, it learns from the environment.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
  const int elements = argc > 2 ? std::atoi(argv[2]) : 100'000;
  // Within which the others must do their part.
  const std::chrono::seconds deadline(argc > 3 ? std::atoi(argv[3]) : 5);

  if (iterations < 1 || elements < 1 || deadline < 1s) {
    std::fprintf(stderr, "iterations, elements and seconds: 1 or more are allowed\n");
    return 2;
  }
  auto created = thalweg::Communicator::create({});
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.error().message().c_str());
    return 1;
  }
  thalweg::Communicator all = std::move(*created);

  for (int i = 0; i < iterations; ++i) {
    std::vector<float> gradient(static_cast<std::size_t>(elements), 1.0F);
    const auto status = all.allreduce(thalweg::TensorSpan::of(gradient), {.deadline = deadline});
    if (status.ok()) {
      std::printf("iteration %d: %d ranks, sum %g\n", i, all.size(),
                  static_cast<double>(gradient.back()));
      std::fflush(stdout);
      continue;
    }
    std::printf("iteration %d: %s\n", i, status.error().message().c_str());
    std::fflush(stdout);
    // Those who are there within two seconds go on.
    auto survivors = all.shrink(2s);
    if (!survivors.ok()) {
      std::fprintf(stderr, "%s\n", survivors.error().message().c_str());
      return 1;
    }
    all = std::move(*survivors);
  }
  return 0;
}
