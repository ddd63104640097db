// Distinct types for the quantities of the system, so that a rate is never added to a size.
//
// Time and Duration count picoseconds: a byte takes 80 ps at 100 Gb/s, and a simulation that
// rounds each packet to nanoseconds drifts. An int64 of picoseconds spans 106 days; a driver
// counts from its own start, not from boot.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration picoseconds(std::int64_t ps) { return Duration(ps); }
  static constexpr Duration nanoseconds(std::int64_t ns) { return Duration(ns * 1'000); }
  static constexpr Duration microseconds(std::int64_t us) { return Duration(us * 1'000'000); }
  static constexpr Duration milliseconds(std::int64_t ms) { return Duration(ms * 1'000'000'000); }
  // Rounded to the nearest picosecond.
  static Duration seconds(double s);

  [[nodiscard]] constexpr std::int64_t ps() const { return ps_; }
  [[nodiscard]] constexpr double us() const { return static_cast<double>(ps_) * 1e-6; }
  [[nodiscard]] constexpr double ms() const { return static_cast<double>(ps_) * 1e-9; }
  [[nodiscard]] constexpr double s() const { return static_cast<double>(ps_) * 1e-12; }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration o) const { return Duration(ps_ + o.ps_); }
  constexpr Duration operator-(Duration o) const { return Duration(ps_ - o.ps_); }
  constexpr Duration operator*(std::int64_t k) const { return Duration(ps_ * k); }
  constexpr Duration operator/(std::int64_t k) const { return Duration(ps_ / k); }
  constexpr Duration& operator+=(Duration o) { return ps_ += o.ps_, *this; }

 private:
  explicit constexpr Duration(std::int64_t ps) : ps_(ps) {}
  std::int64_t ps_ = 0;
};

// A point in time, counted from the start of the driver that supplies it.
class Time {
 public:
  constexpr Time() = default;
  static constexpr Time at(Duration since_start) { return Time(since_start); }

  [[nodiscard]] constexpr Duration since_start() const { return since_start_; }

  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Duration d) const { return Time(since_start_ + d); }
  constexpr Time operator-(Duration d) const { return Time(since_start_ - d); }
  constexpr Duration operator-(Time o) const { return since_start_ - o.since_start_; }
  constexpr Time& operator+=(Duration d) { return since_start_ += d, *this; }

 private:
  explicit constexpr Time(Duration since_start) : since_start_(since_start) {}
  Duration since_start_;
};

class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(std::int64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::int64_t count() const { return count_; }

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes o) const { return Bytes(count_ + o.count_); }
  constexpr Bytes operator-(Bytes o) const { return Bytes(count_ - o.count_); }
  constexpr Bytes operator*(std::int64_t k) const { return Bytes(count_ * k); }
  constexpr Bytes& operator+=(Bytes o) { return count_ += o.count_, *this; }

 private:
  std::int64_t count_ = 0;
};

class Bandwidth {
 public:
  constexpr Bandwidth() = default;
  static constexpr Bandwidth bits_per_second(std::int64_t bps) { return Bandwidth(bps); }
  static constexpr Bandwidth gbps(std::int64_t g) { return Bandwidth(g * 1'000'000'000); }

  [[nodiscard]] constexpr std::int64_t bps() const { return bps_; }
  [[nodiscard]] constexpr double bytes_per_second() const { return static_cast<double>(bps_) / 8; }
  // How long `size` occupies a link of this rate. Requires a rate above zero.
  [[nodiscard]] Duration transmission_time(Bytes size) const;

  constexpr auto operator<=>(const Bandwidth&) const = default;
  constexpr Bandwidth operator+(Bandwidth o) const { return Bandwidth(bps_ + o.bps_); }
  constexpr Bandwidth& operator+=(Bandwidth o) { return bps_ += o.bps_, *this; }

 private:
  explicit constexpr Bandwidth(std::int64_t bps) : bps_(bps) {}
  std::int64_t bps_ = 0;
};

// A number that names one thing among many of its kind. Ids of different kinds do not mix.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  explicit constexpr Id(std::int32_t value) : value_(value) {}

  [[nodiscard]] constexpr std::int32_t value() const { return value_; }
  // For use as a subscript. Requires a valid id.
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  [[nodiscard]] constexpr bool valid() const { return value_ >= 0; }

  constexpr auto operator<=>(const Id&) const = default;
  constexpr Id& operator++() { return ++value_, *this; }

 private:
  std::int32_t value_ = -1;
};

using Rank = Id<struct RankTag>;                  // a participant of a collective
using ChunkIndex = Id<struct ChunkIndexTag>;      // a plan's unit of a tensor
using SegmentIndex = Id<struct SegmentIndexTag>;  // one packet's worth of a tensor

// These parse quantities as people write them. A unit is required except after 0. Case matters (b
// is bit, B is byte), except that k and K both mean 1000. The error names the text and the units
// allowed.
//   bytes      0, 512B, 64KiB, 97MB, 1GiB        (kB = 1000 B, KiB = 1024 B)
//   bandwidth  100M, 10G, 10Gbps, 2.5Gb/s        (bits per second)
//   duration   85.2us, 10ms, 200ns, 1s
Result<Bytes> parse_bytes(std::string_view text);
Result<Bandwidth> parse_bandwidth(std::string_view text);
Result<Duration> parse_duration(std::string_view text);

// The shortest exact form that parses back to the same value.
std::string to_string(Bytes size);
std::string to_string(Bandwidth rate);
std::string to_string(Duration duration);

// Rounded to three significant digits, for tables: "97.0 MB", "1.23 ms".
std::string to_human(Bytes size);
std::string to_human(Duration duration);

}  // namespace thalweg

template <class Tag>
struct std::hash<thalweg::Id<Tag>> {
  std::size_t operator()(thalweg::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value());
  }
};
