// Fits a line to points with a parameter server. Every worker has a part of the points.
//
//   thalweg ps --config ps.yaml    (workers: 3, rate: 0.5)
//   build/release/examples/ps_regression 127.0.0.1:7900 0 [steps]    and the same with workers 1, 2
#include <array>
#include <cstdio>
#include <cstdlib>

#include <thalweg/parameter_client.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: ps_regression HOST:PORT WORKER [steps]\n");
    return 2;
  }
  const auto worker = static_cast<unsigned>(std::atoi(argv[2]));
  const int steps = argc > 3 ? std::atoi(argv[3]) : 200;
  auto server = thalweg::ParameterClient::connect({.server = argv[1], .worker = worker});
  const auto fail = [](const thalweg::Error& error) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  };
  if (!server.ok()) return fail(server.error());

  std::array<float, 2> line{};  // slope and offset; the points lie on 3 x − 1
  if (const auto status = server->init("line", line); !status.ok()) return fail(status.error());
  for (int step = 0; step < steps; ++step) {
    std::array<float, 2> gradient{};
    constexpr int kPoints = 10;
    for (int i = 0; i < kPoints; ++i) {
      const float x = static_cast<float>(i) / kPoints + 0.03F * static_cast<float>(worker);
      const float off = line[0] * x + line[1] - (3 * x - 1);
      gradient[0] += off * x / kPoints;
      gradient[1] += off / kPoints;
    }
    if (const auto pushed = server->push("line", gradient); !pushed.ok()) {
      return fail(pushed.error());
    }
    if (const auto pulled = server->pull("line", line); !pulled.ok()) return fail(pulled.error());
  }
  std::printf("worker %u: %.3f x %+.3f\n", worker, static_cast<double>(line[0]),
              static_cast<double>(line[1]));
  return 0;
}
