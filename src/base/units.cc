#include "base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/int128.h"
#include "base/suggest.h"

namespace thalweg {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t scale;
};

// Sorted from the largest: a value is printed in the first unit that divides it.
constexpr std::array<Unit, 10> kByteUnits{{{"TiB", std::int64_t{1} << 40},
                                           {"TB", 1'000'000'000'000},
                                           {"GiB", std::int64_t{1} << 30},
                                           {"GB", 1'000'000'000},
                                           {"MiB", std::int64_t{1} << 20},
                                           {"MB", 1'000'000},
                                           {"KiB", std::int64_t{1} << 10},
                                           {"kB", 1'000},
                                           {"KB", 1'000},
                                           {"B", 1}}};

constexpr std::array<Unit, 5> kRateUnits{
    {{"T", 1'000'000'000'000}, {"G", 1'000'000'000}, {"M", 1'000'000}, {"K", 1'000}, {"k", 1'000}}};

constexpr std::array<Unit, 5> kTimeUnits{
    {{"s", 1'000'000'000'000}, {"ms", 1'000'000'000}, {"us", 1'000'000}, {"ns", 1'000}, {"ps", 1}}};

struct Quantity {
  double number = 0;
  std::string_view unit;
};

// Splits "2.5Gb/s" into 2.5 and "Gb/s". Fails on anything but a finite number at or above zero.
bool split_quantity(std::string_view text, Quantity& out) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), out.number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(out.number) || out.number < 0) return false;
  out.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (out.unit.starts_with(' ')) out.unit.remove_prefix(1);
  return true;
}

// `suffix`: what followed the unit and was cut off the text before it was split, such as "bps".
Error bad_quantity(std::string_view kind, std::string_view text, std::span<const Unit> units,
                   std::string_view allowed, std::string_view suffix = "") {
  std::string suggestion;
  Quantity quantity;
  if (split_quantity(text.substr(0, text.size() - suffix.size()), quantity)) {
    std::vector<std::string> names;
    for (const Unit& unit : units) names.emplace_back(unit.name);
    if (const auto meant = nearest(quantity.unit, names)) {
      suggestion = fmt::format("; did you mean '{}{}{}'?", quantity.number, *meant, suffix);
    }
  }
  return Error(fmt::format("'{}' is not a {}: write {}{}", text, kind, allowed, suggestion));
}

bool scale_quantity(double number, std::int64_t scale, std::int64_t& out) {
  const double scaled = std::round(number * static_cast<double>(scale));
  // 2^63 is the first double that does not fit; a fraction that rounds to nothing is a mistake.
  if (scaled >= 9223372036854775808.0 || (scaled == 0 && number != 0)) return false;
  out = static_cast<std::int64_t>(scaled);
  return true;
}

bool parse_with_units(std::string_view text, std::span<const Unit> units, std::int64_t& out) {
  Quantity quantity;
  if (!split_quantity(text, quantity)) return false;
  if (quantity.unit.empty() && quantity.number == 0) return out = 0, true;
  const auto* unit = std::find_if(units.data(), units.data() + units.size(),
                                  [&](const Unit& u) { return u.name == quantity.unit; });
  return unit != units.data() + units.size() && scale_quantity(quantity.number, unit->scale, out);
}

std::string print_with_units(std::int64_t value, std::span<const Unit> units,
                             std::string_view base_unit) {
  if (value == 0) return fmt::format("0{}", base_unit);
  for (const Unit& unit : units) {
    if (value % unit.scale == 0) return fmt::format("{}{}", value / unit.scale, unit.name);
  }
  return fmt::format("{}{}", value, base_unit);
}

std::string three_digits(double value, std::string_view unit) {
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

}  // namespace

Duration Duration::seconds(double s) {
  const double ps = std::round(s * 1e12);
  CHECK(std::abs(ps) < 9.2e18, "{} s does not fit a Duration", s);
  return Duration(static_cast<std::int64_t>(ps));
}

Duration Bandwidth::transmission_time(Bytes size) const {
  CHECK(bps_ > 0);
  // Exact, rounded up to a picosecond: a link never finishes early.
  const auto bit_picoseconds = static_cast<Int128>(size.count()) * 8 * 1'000'000'000'000;
  return Duration::picoseconds(static_cast<std::int64_t>((bit_picoseconds + bps_ - 1) / bps_));
}

Result<Bytes> parse_bytes(std::string_view text) {
  std::int64_t count = 0;
  if (!parse_with_units(text, kByteUnits, count)) {
    return bad_quantity("size", text, kByteUnits,
                        "a number and B, kB, KiB, MB, MiB, GB, GiB, TB or TiB");
  }
  return Bytes(count);
}

Result<Bandwidth> parse_bandwidth(std::string_view text) {
  std::string_view body = text;
  for (const std::string_view suffix : {"bps", "b/s", "bit/s"}) {
    if (body.ends_with(suffix)) {
      body.remove_suffix(suffix.size());
      break;
    }
  }
  std::int64_t bps = 0;
  Quantity quantity;
  const bool plain_bits = body.size() < text.size() && split_quantity(body, quantity) &&
                          quantity.unit.empty() && scale_quantity(quantity.number, 1, bps);
  if (!plain_bits && !parse_with_units(body, kRateUnits, bps)) {
    return bad_quantity("bandwidth", text, kRateUnits,
                        "a number and K, M, G or T (bits per second), as in 10G or 2.5Gbps",
                        text.substr(body.size()));
  }
  return Bandwidth::bits_per_second(bps);
}

Result<Duration> parse_duration(std::string_view text) {
  std::int64_t ps = 0;
  if (!parse_with_units(text, kTimeUnits, ps)) {
    return bad_quantity("time", text, kTimeUnits, "a number and ps, ns, us, ms or s");
  }
  return Duration::picoseconds(ps);
}

std::string to_string(Bytes size) { return print_with_units(size.count(), kByteUnits, "B"); }

std::string to_string(Bandwidth rate) {
  return print_with_units(rate.bps(), kRateUnits, "") + "bps";
}

std::string to_string(Duration duration) {
  return print_with_units(duration.ps(), kTimeUnits, "ps");
}

std::string to_human(Bytes size) {
  const auto value = static_cast<double>(size.count());
  if (value >= 1e9) return three_digits(value / 1e9, "GB");
  if (value >= 1e6) return three_digits(value / 1e6, "MB");
  if (value >= 1e3) return three_digits(value / 1e3, "kB");
  return fmt::format("{} B", size.count());
}

std::string to_human(Duration duration) {
  if (duration.s() >= 1) return three_digits(duration.s(), "s");
  if (duration.ms() >= 1) return three_digits(duration.ms(), "ms");
  if (duration.us() >= 1) return three_digits(duration.us(), "us");
  return three_digits(static_cast<double>(duration.ps()) * 1e-3, "ns");
}

}  // namespace thalweg
