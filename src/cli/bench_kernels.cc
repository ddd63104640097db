// Every kernel runs over arrays beyond cache, in turn with memcpy over arrays of the same size, and
// is rated against it. A rate counts the bytes a program reads and writes, as STREAM does
// (McCalpin): memcpy of n bytes moves 2n, dst = dst op b moves 3n, the division that ends a mean
// moves 2n; tagging by magnitude, authenticating and the exponents of blocks, which only read, n. A
// conversion to or from fixed point moves the n bytes of floats and as many integers, a packet of
// them at a time, which is where a worker has them: they stay in cache.
//
// The memcpy before each kernel also restores the kernel's operand, so every repetition works on
// the same numbers and none drifts to infinity or into subnormals.
#include "cli/bench_kernels.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/histogram.h"
#include "base/prng.h"
#include "base/units.h"
#include "cli/command.h"
#include "tensor/fixed_point.h"
#include "tensor/reduce.h"
#include "tensor/tags.h"
#include "wire/authenticate.h"

namespace thalweg {
namespace {

constexpr Bytes kMinSize(4096);
constexpr Bytes kMaxSize(std::int64_t{4} << 30);
constexpr std::int64_t kSizeUnit = 8;  // whole elements of every type
constexpr double kMaxSeconds = 3600;
constexpr int kMinRepetitions = 3;
constexpr std::int64_t kContributions = 3;
constexpr Bytes kSegment(1400);
constexpr std::size_t kFixedBlock = 64;  // elements that share an exponent: those of a packet
constexpr int kFixedWorkers = 8;

constexpr const char* kDefinition =
    "1e9 bytes read and written per second, as STREAM counts: memcpy of n bytes moves 2n, "
    "dst = dst op b moves 3n, the division that ends a mean 2n, tagging and authenticating n, "
    "exponents of blocks n, fixed point 2n (3n for 16-bit floats; the integers, a packet of them "
    "at "
    "a time, stay in cache)";
constexpr const char* kArrayDefinition =
    "1e9 bytes of one array per second, however often the array is read and written";

struct Options {
  std::string size = "128MiB";
  double seconds = 10;
  bool json = false;
};

class AlignedArray {
 public:
  explicit AlignedArray(std::size_t size)
      : data_(static_cast<std::byte*>(::operator new(size, kAlignment))) {}
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Bits that are an ordinary number in every element type: in each 16 bits the sign, the mantissa
// and the lowest bit of the exponent are random. As float16 that is a magnitude in [0.5, 2); wider
// floats are small but normal, and so are their products. Requires whole words.
void fill_with_numbers(std::byte* data, std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = (prng.next() & 0x87ff87ff87ff87ff) | 0x3800380038003800;
    std::memcpy(data + i, &word, sizeof(word));
  }
}

// What is known of one kernel, or of memcpy, after some repetitions.
struct Rate {
  // How often an element of the array is read or written.
  double passes = 0;
  Histogram array_gbps;

  void add(std::size_t array_bytes, double seconds) {
    array_gbps.add(static_cast<double>(array_bytes) / seconds * 1e-9);
  }
  [[nodiscard]] double median_array_gbps() const { return array_gbps.percentile(50); }
  [[nodiscard]] double median_gbps() const { return passes * median_array_gbps(); }
};

struct Kernel {
  std::string name;
  std::string type;
  std::string op;
  Rate rate;
  std::function<void(std::byte* dst, const std::byte* b, std::size_t size)> run;
};

// The step of a mean is a sum; what is left to measure of it is its division.
Kernel reduction(DType type, ReduceOp op) {
  if (op == ReduceOp::kMean) {
    return {fmt::format("{} mean (division)", name_of(type)),
            name_of(type),
            name_of(op),
            {2, {}},
            [type](std::byte* dst, const std::byte* /*b*/, std::size_t size) {
              finish_mean(type, dst, size / size_of(type), kContributions);
            }};
  }
  return {fmt::format("{} {}", name_of(type), name_of(op)),
          name_of(type),
          name_of(op),
          {3, {}},
          [type, op](std::byte* dst, const std::byte* b, std::size_t size) {
            reduce(type, op, dst, dst, b, size / size_of(type));
          }};
}

// The whole of what a sender does to tag a tensor, its median included.
Kernel tagging(DType type, MagnitudeReference reference, const char* op) {
  return {
      fmt::format("{} {}", name_of(type), op),
      name_of(type),
      op,
      {1, {}},
      [type, tagger = MagnitudeTagger({.reference = reference}), tags = std::vector<SegmentTag>()](
          std::byte* dst, const std::byte* /*b*/, std::size_t size) mutable {
        const auto element = static_cast<std::int64_t>(size_of(type));
        const Partition partition =
            Partition::make(static_cast<std::int64_t>(size) / element, Bytes(element), kSegment)
                .value();
        tags.resize(static_cast<std::size_t>(partition.segment_count()));
        tagger.tag(type, dst, partition, 1, tags);
      }};
}

// The three steps of numbers on their way through a switch, in blocks of one packet each.
Kernel exponents(DType type) {
  return {fmt::format("{} exponents", name_of(type)),
          name_of(type),
          "exponents",
          {1, {}},
          [type, found = std::vector<BlockExponent>()](std::byte* dst, const std::byte* /*b*/,
                                                       std::size_t size) mutable {
            const std::size_t count = size / size_of(type);
            found.resize((count + kFixedBlock - 1) / kFixedBlock);
            block_exponents(type, dst, count, kFixedBlock, found);
          }};
}

Kernel fixed_point(DType type, bool forth) {
  const double integer_passes = sizeof(std::int32_t) / static_cast<double>(size_of(type));
  const char* const op = forth ? "to fixed point" : "from fixed point";
  return {fmt::format("{} {}", name_of(type), op),
          name_of(type),
          op,
          {1 + integer_passes, {}},
          [type, forth](std::byte* dst, const std::byte* /*b*/, std::size_t size) {
            const std::array<BlockExponent, 1> exponent{2};
            std::array<std::int32_t, kFixedBlock> packet{};
            const std::size_t count = size / size_of(type);
            std::size_t misfits = 0;
            for (std::size_t at = 0; at < count; at += kFixedBlock) {
              const std::size_t length = std::min(kFixedBlock, count - at);
              std::byte* const floats = dst + at * size_of(type);
              if (forth) {
                misfits += to_fixed_point(type, floats, length, kFixedBlock, exponent,
                                          kFixedWorkers, packet.data());
              } else {
                packet[0] = static_cast<std::int32_t>(at);
                from_fixed_point(type, packet.data(), length, kFixedBlock, exponent, kFixedWorkers,
                                 floats);
              }
            }
            CHECK(misfits == 0, "{} of the benchmark's numbers do not fit", misfits);
          }};
}

// The keyed tags of packets of one segment each.
Kernel authentication() {
  const JobKey key(std::array<std::byte, kJobKeySize>{});
  return {"authenticate packets",
          "packets",
          "authenticate",
          {1, {}},
          [gmac = std::make_shared<Gmac>(key, KeyScope(), WireChannel::kData)](
              std::byte* dst, const std::byte* b, std::size_t size) {
            const auto segment = static_cast<std::size_t>(kSegment.count());
            std::byte any{};
            for (std::size_t at = 0; at < size; at += segment) {
              const std::span<const std::byte> payload(dst + at, std::min(segment, size - at));
              any |= gmac->tag(at, {b, kDataHeaderSize}, payload)[0];
            }
            CHECK(any != std::byte{} || size <= segment);
          }};
}

struct Measurement {
  std::vector<Kernel> kernels;
  Rate copy{2, {}};
  int repetitions = 0;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Work>
double seconds_of(const Work& work) {
  const double start = processor_seconds();
  work();
  return processor_seconds() - start;
}

// Repeats until `seconds` have passed, and at least kMinRepetitions times.
Measurement measure(std::size_t size, double seconds) {
  const AlignedArray source(size);
  const AlignedArray a(size);
  const AlignedArray b(size);
  fill_with_numbers(source.data(), size, 1);
  fill_with_numbers(b.data(), size, 2);
  std::memcpy(a.data(), source.data(), size);

  Measurement result;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      result.kernels.push_back(reduction(static_cast<DType>(type), static_cast<ReduceOp>(op)));
    }
  }
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    result.kernels.push_back(tagging(type, MagnitudeReference::kElementMedian, "tag"));
  }
  result.kernels.push_back(
      tagging(DType::kFloat32, MagnitudeReference::kSegmentMedian, "tag (segments)"));
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    result.kernels.push_back(exponents(type));
    result.kernels.push_back(fixed_point(type, true));
    result.kernels.push_back(fixed_point(type, false));
  }
  result.kernels.push_back(authentication());
  Progress progress;
  const auto start = Clock::now();
  while (result.repetitions < kMinRepetitions || seconds_since(start) < seconds) {
    for (Kernel& kernel : result.kernels) {
      result.copy.add(size, seconds_of([&] { std::memcpy(a.data(), source.data(), size); }));
      kernel.rate.add(size, seconds_of([&] { kernel.run(a.data(), b.data(), size); }));
      progress.show(fmt::format("measuring: {:.0f} %, repetition {}",
                                std::min(seconds_since(start) / seconds, 1.0) * 100,
                                result.repetitions + 1));
    }
    ++result.repetitions;
  }
  return result;
}

void print_json(const Measurement& measurement, Bytes size) {
  const double memcpy_gbps = measurement.copy.median_gbps();
  const double memcpy_array_gbps = measurement.copy.median_array_gbps();
  nlohmann::ordered_json json;
  json["simd_target"] = simd_target();
  json["size_bytes"] = size.count();
  json["threads"] = 1;
  json["repetitions"] = measurement.repetitions;
  json["statistic"] = "median over the repetitions, memcpy and kernels in turn, by processor time";
  json["gbps_definition"] = kDefinition;
  json["array_gbps_definition"] = kArrayDefinition;
  json["memcpy_gbps"] = memcpy_gbps;
  json["memcpy_array_gbps"] = memcpy_array_gbps;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const Kernel& kernel : measurement.kernels) {
    nlohmann::ordered_json row;
    row["kernel"] = kernel.name;
    row["dtype"] = kernel.type;
    row["op"] = kernel.op;
    row["gbps"] = kernel.rate.median_gbps();
    row["ratio"] = kernel.rate.median_gbps() / memcpy_gbps;
    row["array_gbps"] = kernel.rate.median_array_gbps();
    row["array_ratio"] = kernel.rate.median_array_gbps() / memcpy_array_gbps;
    json["kernels"].push_back(std::move(row));
  }
  fmt::print("{}\n", json.dump(2));
}

void print_table(const Measurement& measurement, Bytes size) {
  const Rate& copy = measurement.copy;
  fmt::print(
      "Kernels, {}, 1 thread, arrays of {}; medians of {} repetitions in turn with "
      "memcpy, by processor time.\n"
      "GB/s: {}.\n"
      "array GB/s: {}.\n"
      "ratio: to memcpy's.\n\n",
      simd_target(), to_string(size), measurement.repetitions, kDefinition, kArrayDefinition);
  fmt::print("{:<24} {:>7} {:>6} {:>11} {:>6} {:>7} {:>7}\n", "kernel", "GB/s", "ratio",
             "array GB/s", "ratio", "p10", "p90");
  const auto print_row = [&](const std::string& name, const Rate& rate) {
    fmt::print("{:<24} {:>7.2f} {:>6.2f} {:>11.2f} {:>6.2f} {:>7.2f} {:>7.2f}\n", name,
               rate.median_gbps(), rate.median_gbps() / copy.median_gbps(),
               rate.median_array_gbps(), rate.median_array_gbps() / copy.median_array_gbps(),
               rate.array_gbps.percentile(10), rate.array_gbps.percentile(90));
  };
  print_row("memcpy", copy);
  for (const Kernel& kernel : measurement.kernels) print_row(kernel.name, kernel.rate);
}

// As CLI11 validators: empty if the text is good, else what is wrong.
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

void run(const Options& options) {
  const Bytes size = parse_bytes(options.size).value();
  Measurement measurement;
  try {
    measurement = measure(static_cast<std::size_t>(size.count()), options.seconds);
  } catch (const std::bad_alloc&) {
    throw CLI::ValidationError(
        "--size",
        fmt::format("no memory for three arrays of {}: write a smaller size", options.size));
  }
  if (options.json) {
    print_json(measurement, size);
  } else {
    print_table(measurement, size);
  }
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto* command = bench.add_subcommand("kernels",
                                       "Memory bandwidth of reduction, tagging, fixed point and "
                                       "authentication, beside memcpy in the "
                                       "same run");
  auto options = std::make_shared<Options>();
  command->add_option("--size", options->size, "Size of each of the three arrays; above the cache")
      ->check(check_size, "SIZE")
      ->capture_default_str();
  command
      ->add_option("--seconds", options->seconds,
                   fmt::format("How long to measure; at least {} repetitions", kMinRepetitions))
      ->check(check_seconds, "SECONDS")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->callback([options] { run(*options); });
}

}  // namespace thalweg
