#include "cli/commands.h"

#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "lab/bench/switch_rates.h"
#include "lab/console.h"
#include "lab/terminal.h"

namespace thalweg::cli {
namespace {

struct BenchSwitchArguments {
  lab::SwitchLoad load;
  bool as_json = false;
};

constexpr const char* kDefinition =
    "gradient packets per second of one core. packets_per_s_core: through the data plane in "
    "memory, "
    "in runs of 64 as the socket layer gives them; sums and parameter packets are written, not "
    "sent. "
    "xdp_packets_per_s_core: the same work in the kernel, single runs of the program as the system "
    "times them (BPF_PROG_TEST_RUN); null without root or with more than 64 elements. "
    "udp_packets_per_s_core: the switch's thread over UDP on loopback, system calls included. "
    "limit_packets_per_s: bytes per second of an int32 sum beyond cache, over those of a packet";

struct Rates {
  double limit = 0;
  double stage = 0;
  Result<double> xdp;
  lab::UdpRate udp;
};

Result<Rates> measure(const lab::SwitchLoad& load) {
  lab::Progress progress;
  progress.show("memory limit", 0);
  const double limit = lab::measure_memory_limit(load);
  progress.show("data plane", 0.25);
  const double stage = lab::measure_stage(load);
  progress.show("in the kernel (XDP)", 0.5);
  Result<double> xdp = lab::measure_xdp(load);
  progress.show("over UDP", 0.75);
  THALWEG_TRY(const lab::UdpRate udp, lab::measure_udp(load));
  return Rates{.limit = limit, .stage = stage, .xdp = std::move(xdp), .udp = udp};
}

Result<int> run_bench_switch(const BenchSwitchArguments& arguments) {
  const lab::SwitchLoad& load = arguments.load;
  THALWEG_TRY(const Rates rates, measure(load));
  const auto& [limit, stage, xdp, udp] = rates;
  if (arguments.as_json) {
    const nlohmann::json out{{"workers", load.workers},
                             {"elements", load.elements},
                             {"packets_per_s_core", stage},
                             {"xdp_packets_per_s_core", xdp.ok() ? nlohmann::json(*xdp) : nullptr},
                             {"udp_packets_per_s_core", udp.packets_per_s_core},
                             {"udp_packets_per_call", udp.packets_per_call},
                             {"limit_packets_per_s", limit},
                             {"of_limit", stage / limit},
                             {"definition", kDefinition}};
    std::cout << out.dump(2) << '\n';
    return 0;
  }
  const auto row = [&](const char* name, double rate) {
    return std::vector<std::string>{name, fmt::format("{:.2f}", rate * 1e-6),
                                    fmt::format("{:.2f}", rate / limit)};
  };
  std::vector<std::vector<std::string>> rows{{"of one core", "million packets/s", "of limit"},
                                             row("memory limit", limit),
                                             row("data plane", stage)};
  if (xdp.ok()) rows.push_back(row("in the kernel (XDP)", *xdp));
  rows.push_back(row("switch over UDP", udp.packets_per_s_core));
  std::cout << lab::format_table(rows);
  if (!xdp.ok()) std::cout << fmt::format("without XDP: {}\n", xdp.error().message());
  std::cout << fmt::format("{} workers, {} elements a packet, {:.1f} packets a receive call\n",
                           load.workers, load.elements, udp.packets_per_call);
  return 0;
}

}  // namespace

void add_bench_switch(CLI::App& bench) {
  auto arguments = std::make_shared<BenchSwitchArguments>();
  CLI::App& command =
      *bench.add_subcommand("switch", "aggregation of gradient packets in the software switch");
  command.add_option("--workers", arguments->load.workers, "workers of the job")
      ->check(CLI::Range(2, 32))
      ->capture_default_str();
  command.add_option("--elements", arguments->load.elements, "elements of 32 bits in a packet")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{256}))
      ->capture_default_str();
  command
      .add_option("--seconds", arguments->load.seconds,
                  "how long each rate is measured, in seconds")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command.add_flag("--json", arguments->as_json, "print a JSON object");
  add_examples(command, {"thalweg bench switch --workers 8 --seconds 1"});
  on_run(command, [arguments] { return run_bench_switch(*arguments); });
}

}  // namespace thalweg::cli
