// Every kernel runs over arrays beyond cache, in turn with memcpy over arrays of the same size, and
// is rated against it. A rate counts the bytes that a program reads and writes, as STREAM does
// (McCalpin): memcpy of n bytes moves 2n, dst = dst op b moves 3n, and the division that ends a
// mean moves 2n. Tagging by magnitude, authenticating, checksums and finding the exponents of
// blocks only read, and move n. A conversion to or from fixed point moves the n bytes of floats and
// as many integers. It works on one packet of integers at a time, as a worker does: they stay in
// cache.
//
// The memcpy before each kernel also restores the kernel's operand, so every repetition works on
// the same numbers and none drifts to infinity or into subnormals.
#include "lab/bench/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "base/prng.h"
#include "lab/console.h"
#include "lab/terminal.h"
#include "tensor/fixed_point.h"
#include "tensor/reduce.h"
#include "tensor/tags.h"
#include "wire/authenticate.h"
#include "wire/checksum.h"

namespace thalweg::lab {
namespace {

constexpr std::int64_t kContributions = 3;
constexpr Bytes kSegment(1400);
constexpr std::size_t kFixedBlock = 64;  // elements that share an exponent: those of a packet
constexpr int kFixedWorkers = 8;

constexpr const char* kDefinition =
    "1e9 bytes read and written per second, as STREAM counts: memcpy of n bytes moves 2n, "
    "dst = dst op b moves 3n, the division that ends a mean 2n, tagging, authenticating and "
    "checksums n, exponents of blocks n, fixed point 2n (3n for 16-bit floats; the integers, a "
    "packet of them at a time, stay in cache)";
constexpr const char* kArrayDefinition =
    "1e9 bytes of one array per second, however often the array is read and written";

// Memory that begins at a cache line.
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

// Fills the array with bits that are an ordinary number in every element type of 16 bits and more:
// in each 16 bits the sign, the mantissa and the lowest bit of the exponent are random. As float16
// that is a magnitude in [0.5, 2); wider floats are small but normal, and so are their products. Of
// the 8-bit floats every second one has random bits. Requires whole words.
void fill_with_numbers(std::byte* data, std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = (prng.next() & 0x87ff87ff87ff87ff) | 0x3800380038003800;
    std::memcpy(data + i, &word, sizeof(word));
  }
}

// The reduction itself; for a mean, whose steps are those of a sum, the division that ends it.
Kernel reduction(DType type, ReduceOp op) {
  if (op == ReduceOp::kMean) {
    return {fmt::format("{} mean (division)", name_of(type)),
            name_of(type),
            name_of(op),
            {2, {}},
            [type](std::byte* dst, const std::byte* /*b*/, std::size_t size) {
              tensor::finish_mean(type, dst, size / size_of(type), kContributions);
            }};
  }
  return {fmt::format("{} {}", name_of(type), name_of(op)),
          name_of(type),
          name_of(op),
          {3, {}},
          [type, op](std::byte* dst, const std::byte* b, std::size_t size) {
            tensor::reduce(type, op, dst, dst, b, size / size_of(type));
          }};
}

// All that a sender does to tag a tensor, finding the median included.
Kernel tagging(DType type, tensor::MagnitudeReference reference, const char* op) {
  return {fmt::format("{} {}", name_of(type), op),
          name_of(type),
          op,
          {1, {}},
          [type, tagger = tensor::MagnitudeTagger({.reference = reference}),
           tags = std::vector<SegmentTag>()](std::byte* dst, const std::byte* /*b*/,
                                             std::size_t size) mutable {
            const auto element = static_cast<std::int64_t>(size_of(type));
            const tensor::Partition partition =
                tensor::Partition::make(static_cast<std::int64_t>(size) / element, Bytes(element),
                                        kSegment)
                    .value();
            tags.resize(static_cast<std::size_t>(partition.segment_count()));
            tagger.tag(type, dst, partition, 1, tags);
          }};
}

// The first of the three steps that numbers take on their way through a switch, in blocks of one
// packet each: finding exponents, converting to fixed point, and converting back.
Kernel exponents(DType type) {
  return {fmt::format("{} exponents", name_of(type)),
          name_of(type),
          "exponents",
          {1, {}},
          [type, found = std::vector<tensor::BlockExponent>()](
              std::byte* dst, const std::byte* /*b*/, std::size_t size) mutable {
            const std::size_t count = size / size_of(type);
            found.resize((count + kFixedBlock - 1) / kFixedBlock);
            tensor::block_exponents(type, dst, count, kFixedBlock, found);
          }};
}

// The other two steps; `forth`: to fixed point.
Kernel fixed_point(DType type, bool forth) {
  const double integer_passes = sizeof(std::int32_t) / static_cast<double>(size_of(type));
  const char* const op = forth ? "to fixed point" : "from fixed point";
  return {fmt::format("{} {}", name_of(type), op),
          name_of(type),
          op,
          {1 + integer_passes, {}},
          [type, forth](std::byte* dst, const std::byte* /*b*/, std::size_t size) {
            const std::array<tensor::BlockExponent, 1> exponent{2};
            std::array<std::int32_t, kFixedBlock> packet{};
            const std::size_t count = size / size_of(type);
            std::size_t misfits = 0;
            for (std::size_t at = 0; at < count; at += kFixedBlock) {
              const std::size_t length = std::min(kFixedBlock, count - at);
              std::byte* const floats = dst + at * size_of(type);
              if (forth) {
                misfits += tensor::to_fixed_point(type, floats, length, kFixedBlock, exponent,
                                                  kFixedWorkers, packet.data());
              } else {
                packet[0] = static_cast<std::int32_t>(at);
                tensor::from_fixed_point(type, packet.data(), length, kFixedBlock, exponent,
                                         kFixedWorkers, floats);
              }
            }
            CHECK(misfits == 0, "{} of the benchmark's numbers do not fit", misfits);
          }};
}

// Calls `check` for packets that carry one segment each, with the place of the segment and its
// bytes. It returns a byte of the result.
template <class Check>
Kernel packets(const char* name, const char* op, const Check& check) {
  return {
      name, "packets", op, {1, {}}, [check](std::byte* dst, const std::byte* b, std::size_t size) {
        const auto segment = static_cast<std::size_t>(kSegment.count());
        std::byte any{};
        for (std::size_t at = 0; at < size; at += segment) {
          const std::span<const std::byte> payload(dst + at, std::min(segment, size - at));
          any |= check(at, std::span(b, wire::kDataHeaderSize), payload);
        }
        CHECK(any != std::byte{} || size <= segment);
      }};
}

// Computes the keyed tags of packets.
Kernel authentication(const char* name, const char* op, wire::Gmac::Code code) {
  const wire::JobKey key(std::array<std::byte, wire::kJobKeySize>{});
  return packets(
      name, op,
      [gmac = std::make_shared<wire::Gmac>(key, wire::KeyScope(), wire::KeyUse::kData, code)](
          std::size_t at, std::span<const std::byte> head, std::span<const std::byte> payload) {
        return gmac->tag(at, head, payload)[0];
      });
}

// Computes the checksums of packets without a key.
Kernel checksums() {
  return packets(
      "checksum of packets", "checksum",
      [](std::size_t /*at*/, std::span<const std::byte> head, std::span<const std::byte> payload) {
        return static_cast<std::byte>(wire::crc32c(head, payload));
      });
}

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

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      kernels.push_back(reduction(static_cast<DType>(type), static_cast<ReduceOp>(op)));
    }
  }
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                           DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
    kernels.push_back(tagging(type, tensor::MagnitudeReference::kElementMedian, "tag"));
  }
  kernels.push_back(
      tagging(DType::kFloat32, tensor::MagnitudeReference::kSegmentMedian, "tag (segments)"));
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    kernels.push_back(exponents(type));
    kernels.push_back(fixed_point(type, true));
    kernels.push_back(fixed_point(type, false));
  }
  kernels.push_back(
      authentication("authenticate packets", "authenticate", wire::Gmac::Code::kFastest));
  kernels.push_back(authentication("authenticate by OpenSSL", "authenticate by OpenSSL",
                                   wire::Gmac::Code::kOpenSsl));
  kernels.push_back(checksums());
  return kernels;
}

}  // namespace

KernelMeasurement measure_kernels(Bytes array_size, double seconds) {
  const auto size = static_cast<std::size_t>(array_size.count());
  const AlignedArray source(size);
  const AlignedArray a(size);
  const AlignedArray b(size);
  fill_with_numbers(source.data(), size, 1);
  fill_with_numbers(b.data(), size, 2);
  std::memcpy(a.data(), source.data(), size);

  KernelMeasurement result;
  result.kernels = all_kernels();
  Progress progress;
  const auto start = Clock::now();
  const auto share_done = [&] {
    return std::min(seconds_since(start) / seconds,
                    static_cast<double>(result.repetitions) / kMinKernelRepetitions);
  };
  while (result.repetitions < kMinKernelRepetitions || seconds_since(start) < seconds) {
    for (Kernel& kernel : result.kernels) {
      result.copy.add(size, seconds_of([&] { std::memcpy(a.data(), source.data(), size); }));
      kernel.rate.add(size, seconds_of([&] { kernel.run(a.data(), b.data(), size); }));
      progress.show(fmt::format("repetition {}", result.repetitions + 1), share_done());
    }
    ++result.repetitions;
  }
  return result;
}

std::string kernels_json(const KernelMeasurement& measurement, Bytes size) {
  const double memcpy_gbps = measurement.copy.median_gbps();
  const double memcpy_array_gbps = measurement.copy.median_array_gbps();
  nlohmann::ordered_json json;
  json["simd_target"] = tensor::simd_target();
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
  return json.dump(2) + "\n";
}

std::string kernels_text(const KernelMeasurement& measurement, Bytes size) {
  const KernelRate& copy = measurement.copy;
  std::string text = fmt::format(
      "Kernels, {}, 1 thread, arrays of {}; medians of {} repetitions in turn with "
      "memcpy, by processor time.\n"
      "GB/s: {}.\n"
      "array GB/s: {}.\n"
      "ratio: to memcpy's.\n\n",
      tensor::simd_target(), to_string(size), measurement.repetitions, kDefinition,
      kArrayDefinition);
  text += fmt::format("{:<29} {:>7} {:>6} {:>11} {:>6} {:>7} {:>7}\n", "kernel", "GB/s", "ratio",
                      "array GB/s", "ratio", "p10", "p90");
  const auto add_row = [&](const std::string& name, const KernelRate& rate) {
    text +=
        fmt::format("{:<29} {:>7.2f} {:>6.2f} {:>11.2f} {:>6.2f} {:>7.2f} {:>7.2f}\n", name,
                    rate.median_gbps(), rate.median_gbps() / copy.median_gbps(),
                    rate.median_array_gbps(), rate.median_array_gbps() / copy.median_array_gbps(),
                    rate.array_gbps.percentile(10), rate.array_gbps.percentile(90));
  };
  add_row("memcpy", copy);
  for (const Kernel& kernel : measurement.kernels) add_row(kernel.name, kernel.rate);
  return text;
}

}  // namespace thalweg::lab
