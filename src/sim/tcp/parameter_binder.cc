#include "sim/tcp/parameter_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/number.h"

namespace thalweg::sim {
namespace {

template <class Number>
Result<Number> parse_number(std::string_view text, std::string_view kind) {
  const std::optional<Number> number = number_in<Number>(text);
  if (!number) return Error(fmt::format("'{}' is not a {}", text, kind));
  return *number;
}

Result<std::vector<Bytes>> parse_sizes(std::string_view text) {
  std::vector<Bytes> sizes;
  while (true) {
    const std::size_t end = text.find_first_of(",/");
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    THALWEG_TRY(const Bytes size, parse_bytes(item));
    sizes.push_back(size);
    if (end == std::string_view::npos) return sizes;
    text.remove_prefix(end + 1);
  }
}

std::string print_sizes(const std::vector<Bytes>& sizes) {
  std::vector<std::string> texts;
  texts.reserve(sizes.size());
  for (const Bytes size : sizes) texts.push_back(to_string(size));
  return fmt::format("{}", fmt::join(texts, ","));
}

constexpr std::array kOnOff{Choice{"off", 0}, Choice{"on", 1}};

}  // namespace

const std::string* ParameterBinder::find(std::string_view key) const {
  const auto found = given_.find(std::string(key));
  return found == given_.end() ? nullptr : &found->second;
}

void ParameterBinder::fail(std::string_view key, std::string_view why) {
  if (!error_) error_ = Error(fmt::format("transport '{}': {}: {}", transport_, key, why));
}

template <class T, class Parse, class Print>
void ParameterBinder::bind_quantity(std::string_view key, T& field, Range<T> range,
                                    std::string_view meaning, Parse parse, Print print) {
  const std::string allowed = fmt::format("{} to {}", print(range.least), print(range.most));
  if (const std::string* text = find(key)) {
    const Result<T> parsed = parse(*text);
    if (parsed.ok()) {
      field = *parsed;
    } else {
      fail(key, fmt::format("{}; allowed: {}", parsed.error().message(), allowed));
    }
  }
  // Written so that a NaN counts as outside the range.
  if (!(field >= range.least && field <= range.most)) {
    fail(key, fmt::format("'{}' is not allowed: {}", print(field), allowed));
  }
  parameters_.push_back({std::string(key), print(field), fmt::format("{}: {}", meaning, allowed)});
}

void ParameterBinder::bind(std::string_view key, std::uint32_t& field, Range<std::uint32_t> range,
                           std::string_view meaning) {
  bind_quantity(
      key, field, range, meaning,
      [](std::string_view text) { return parse_number<std::uint32_t>(text, "whole number"); },
      [](std::uint32_t value) { return fmt::format("{}", value); });
}

void ParameterBinder::bind(std::string_view key, double& field, Range<double> range,
                           std::string_view meaning) {
  bind_quantity(
      key, field, range, meaning,
      [](std::string_view text) { return parse_number<double>(text, "number"); },
      [](double value) { return fmt::format("{}", value); });
}

void ParameterBinder::bind(std::string_view key, Bytes& field, Range<Bytes> range,
                           std::string_view meaning) {
  bind_quantity(key, field, range, meaning, parse_bytes,
                [](Bytes value) { return to_string(value); });
}

void ParameterBinder::bind(std::string_view key, Bandwidth& field, Range<Bandwidth> range,
                           std::string_view meaning) {
  bind_quantity(key, field, range, meaning, parse_bandwidth,
                [](Bandwidth value) { return to_string(value); });
}

void ParameterBinder::bind(std::string_view key, Duration& field, Range<Duration> range,
                           std::string_view meaning) {
  bind_quantity(key, field, range, meaning, parse_duration,
                [](Duration value) { return to_string(value); });
}

void ParameterBinder::bind(std::string_view key, bool& field, std::string_view meaning) {
  int value = field ? 1 : 0;
  bind_choice_value(key, value, kOnOff, meaning);
  field = value == 1;
}

void ParameterBinder::bind(std::string_view key, std::vector<Bytes>& field, std::size_t most,
                           std::string_view meaning) {
  if (const std::string* text = find(key)) {
    Result<std::vector<Bytes>> parsed = parse_sizes(*text);
    if (parsed.ok()) {
      field = std::move(parsed).value();
    } else {
      fail(key, parsed.error().message());
    }
  }
  const std::string allowed =
      fmt::format("1 to {} sizes above 0B, each above the one before", most);
  const bool rising =
      std::adjacent_find(field.begin(), field.end(), std::greater_equal<>()) == field.end();
  if (field.empty() || field.size() > most || field.front() <= Bytes(0) || !rising) {
    fail(key, fmt::format("'{}' is not allowed: {}", print_sizes(field), allowed));
  }
  parameters_.push_back(
      {std::string(key), print_sizes(field), fmt::format("{}: {}", meaning, allowed)});
}

void ParameterBinder::bind_choice_value(std::string_view key, int& value,
                                        std::span<const Choice> choices, std::string_view meaning) {
  std::vector<std::string_view> names;
  names.reserve(choices.size());
  for (const Choice& choice : choices) names.push_back(choice.name);
  const std::string allowed = fmt::format("{}", fmt::join(names, " or "));
  if (const std::string* text = find(key)) {
    const auto found = std::find(names.begin(), names.end(), *text);
    if (found == names.end()) {
      fail(key, fmt::format("'{}' is not allowed: {}", *text, allowed));
    } else {
      value = choices[static_cast<std::size_t>(found - names.begin())].value;
    }
  }
  const auto current = std::find_if(choices.begin(), choices.end(),
                                    [&](const Choice& choice) { return choice.value == value; });
  parameters_.push_back(
      {std::string(key), std::string(current->name), fmt::format("{}: {}", meaning, allowed)});
}

Status ParameterBinder::finish() const {
  std::vector<std::string_view> known;
  known.reserve(parameters_.size());
  for (const ParameterInfo& parameter : parameters_) known.emplace_back(parameter.key);
  for (const auto& [key, value] : given_) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Error(fmt::format("transport '{}' has no parameter '{}': it has {}", transport_, key,
                               fmt::join(known, ", ")));
    }
  }
  if (error_) return *error_;
  return ok_status();
}

std::string ParameterBinder::describe() const {
  std::string text = fmt::format("{}:", transport_);
  for (const ParameterInfo& parameter : parameters_) {
    text += fmt::format(" {}={}", parameter.key, parameter.value);
  }
  return text;
}

}  // namespace thalweg::sim
