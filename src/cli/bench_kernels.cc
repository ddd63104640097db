#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "base/units.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/kernels.h"

namespace thalweg::cli {
namespace {

constexpr Bytes kMinSize(4096);
constexpr Bytes kMaxSize(std::int64_t{4} << 30);
constexpr std::int64_t kSizeUnit = 8;  // whole elements of every type
constexpr double kMaxSeconds = 3600;

struct BenchKernelsOptions {
  std::string size = "128MiB";
  double seconds = 10;
  bool json = false;
};

// Validators for CLI11: they return an empty text if the value is good, else what is wrong with it.
std::string check_size(const std::string& text) {
  const Result<Bytes> size = parse_bytes(text);
  if (!size) return size.error().message();
  if (*size < kMinSize || *size > kMaxSize) {
    return fmt::format("'{}' is out of range: write a size from {} to {}", text,
                       to_string(kMinSize), to_string(kMaxSize));
  }
  if (size->count() % kSizeUnit == 0) return {};
  return fmt::format("'{}' is no whole number of elements: write a multiple of {}", text,
                     to_string(Bytes(kSizeUnit)));
}

std::string check_seconds(const std::string& text) {
  double seconds = 0;
  if (CLI::detail::lexical_cast(text, seconds) && seconds > 0 && seconds <= kMaxSeconds) return {};
  return fmt::format("'{}' is no time to measure for: write a number above 0, at most {}", text,
                     kMaxSeconds);
}

void run_bench_kernels(const BenchKernelsOptions& options) {
  const Bytes size = parse_bytes(options.size).value();
  lab::KernelMeasurement measurement;
  try {
    measurement = lab::measure_kernels(size, options.seconds);
  } catch (const std::bad_alloc&) {
    throw CLI::ValidationError(
        "--size",
        fmt::format("no memory for three arrays of {}: write a smaller size", options.size));
  }
  fmt::print("{}", options.json ? lab::kernels_json(measurement, size)
                                : lab::kernels_text(measurement, size));
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto* command = bench.add_subcommand("kernels",
                                       "memory bandwidth of reduction, tagging, fixed point and "
                                       "authentication, beside memcpy in the "
                                       "same run");
  auto options = std::make_shared<BenchKernelsOptions>();
  command->add_option("--size", options->size, "size of each of the three arrays; above the cache")
      ->check(check_size, "SIZE")
      ->capture_default_str();
  command
      ->add_option(
          "--seconds", options->seconds,
          fmt::format("how long to measure; at least {} repetitions", lab::kMinKernelRepetitions))
      ->check(check_seconds, "SECONDS")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON instead of a table");
  add_examples(*command, {"thalweg bench kernels --size 256MiB --seconds 5"});
  command->callback([options] { run_bench_kernels(*options); });
}

}  // namespace thalweg::cli
