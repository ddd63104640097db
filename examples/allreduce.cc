// Sums a vector over all processes of a job, again and again. When one of them dies, the others
// continue without it.
//
//   thalweg run -n 4 --keep-going -- build/release/examples/allreduce [iterations [elements
//   [seconds [tcp|dlcp|atp]]]]
//
// It also runs under torchrun, mpirun and srun: rank and size come from the environment.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

namespace {

// What every rank contributes to element j.
float own_value(std::size_t j) { return static_cast<float>(1 + j % 1000); }

}  // namespace

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
  const int elements = argc > 2 ? std::atoi(argv[2]) : 100'000;
  // The deadline of each allreduce.
  const std::chrono::seconds deadline(argc > 3 ? std::atoi(argv[3]) : 5);
  const std::string transport(argc > 4 ? argv[4] : "tcp");

  if (transport != "tcp" && transport != "dlcp" && transport != "atp") {
    std::fprintf(stderr, "'%s' is no transport of this example: tcp, dlcp or atp\n",
                 transport.c_str());
    return 2;
  }
  if (iterations < 1 || elements < 1 || deadline < 1s) {
    std::fprintf(stderr, "iterations, elements and seconds: 1 or more are allowed\n");
    return 2;
  }
  thalweg::CommunicatorOptions options;
  if (transport == "dlcp") options.transport = thalweg::Transport::kDlcp;
  if (transport == "atp") options.transport = thalweg::Transport::kAtp;  // by THALWEG_SWITCH
  auto created = thalweg::Communicator::create(options);
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.error().message().c_str());
    return 1;
  }
  thalweg::Communicator all = std::move(*created);

  for (int i = 0; i < iterations; ++i) {
    std::vector<float> gradient(static_cast<std::size_t>(elements));
    for (std::size_t j = 0; j < gradient.size(); ++j) gradient[j] = own_value(j);
    const auto status = all.allreduce(thalweg::TensorSpan::of(gradient), {.deadline = deadline});
    if (status.ok()) {
      for (std::size_t j = 0; j < gradient.size(); ++j) {
        const float wanted = own_value(j) * static_cast<float>(all.size());
        if (gradient[j] == wanted) continue;
        std::printf("element %zu: %g instead of %g\n", j, static_cast<double>(gradient[j]),
                    static_cast<double>(wanted));
        return 1;
      }
      std::printf("iteration %d: %d ranks, sum %g\n", i, all.size(),
                  static_cast<double>(gradient.front()));
      std::fflush(stdout);
      continue;
    }
    std::printf("iteration %d: %s\n", i, status.error().message().c_str());
    std::fflush(stdout);
    // The ranks that call shrink() within two seconds form the new communicator.
    auto survivors = all.shrink(2s);
    if (!survivors.ok()) {
      std::fprintf(stderr, "%s\n", survivors.error().message().c_str());
      return 1;
    }
    all = std::move(*survivors);
  }
  return 0;
}
