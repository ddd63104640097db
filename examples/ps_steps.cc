// Pushes gradients to a parameter server, pulls the value after every step, and compares it with
// the value that the same steps give here. The server must be synchronous and exact, and use SGD
// with rate 1.
//
//   thalweg ps --config ps.yaml    (workers: 3, rate: 1, and a transport)
//   build/release/examples/ps_steps 127.0.0.1:7900 0 3 [steps [elements]]    and workers 1, 2
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <thalweg/parameter_client.h>

namespace {

// A multiple of 1/8 in [-4, 4). Floats and fixed point represent it and its sums exactly.
float gradient_at(int worker, int step, std::size_t i) {
  const auto mixed =
      i * 31 + static_cast<std::size_t>(worker) * 17 + static_cast<std::size_t>(step) * 7;
  return static_cast<float>(mixed % 64) / 8 - 4;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: ps_steps HOST:PORT WORKER WORKERS [steps [elements]]\n");
    return 2;
  }
  const int worker = std::atoi(argv[2]);
  const int workers = std::atoi(argv[3]);
  const int steps = argc > 4 ? std::atoi(argv[4]) : 20;
  const auto elements = static_cast<std::size_t>(argc > 5 ? std::atoi(argv[5]) : 1'000'000);
  const auto fail = [](const thalweg::Error& error) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  };
  auto server = thalweg::ParameterClient::connect(
      {.server = argv[1], .worker = static_cast<std::uint32_t>(worker)});
  if (!server.ok()) return fail(server.error());
  std::vector<float> value(elements);
  std::vector<float> wanted(elements);
  std::vector<float> gradient(elements);
  if (const auto made = server->init("w", value); !made.ok()) return fail(made.error());
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < elements; ++i) {
      gradient[i] = gradient_at(worker, step, i);
      float sum = 0;
      for (int w = 0; w < workers; ++w) sum += gradient_at(w, step, i);
      wanted[i] -= sum / static_cast<float>(workers);
    }
    if (const auto pushed = server->push("w", gradient); !pushed.ok()) return fail(pushed.error());
    if (const auto pulled = server->pull("w", value); !pulled.ok()) return fail(pulled.error());
    if (value != wanted) {
      std::fprintf(stderr, "worker %d: step %d is wrong\n", worker, step);
      return 1;
    }
    std::printf("worker %d: step %d exact\n", worker, step);
    std::fflush(stdout);
  }
  std::printf("worker %d: all exact\n", worker);
  return 0;
}
