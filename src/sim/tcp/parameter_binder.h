// Binds the keys of a transport to the fields of its parameter struct. One list of bind() calls per
// transport serves four purposes: reading a scenario's values, validating the struct, printing the
// values in effect, and listing the parameters.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/tcp/transports.h"

namespace thalweg::sim {

// Both ends are allowed values.
template <class T>
struct Range {
  T least;
  T most;
};

struct Choice {
  std::string_view name;
  int value;
};

class ParameterBinder {
 public:
  // `given` must outlive the binder.
  ParameterBinder(std::string_view transport, const KeyValues& given)
      : transport_(transport), given_(given) {}

  // Each bind() puts the given value, if there is one, into `field` and checks the field's range.
  // Only the first error is kept.
  void bind(std::string_view key, std::uint32_t& field, Range<std::uint32_t> range,
            std::string_view meaning);
  void bind(std::string_view key, double& field, Range<double> range, std::string_view meaning);
  void bind(std::string_view key, bool& field, std::string_view meaning);
  void bind(std::string_view key, Bytes& field, Range<Bytes> range, std::string_view meaning);
  void bind(std::string_view key, Bandwidth& field, Range<Bandwidth> range,
            std::string_view meaning);
  void bind(std::string_view key, Duration& field, Range<Duration> range, std::string_view meaning);
  // Rising sizes, separated by ',' or '/'; `most` of them at most.
  void bind(std::string_view key, std::vector<Bytes>& field, std::size_t most,
            std::string_view meaning);
  // An unset field becomes `otherwise`.
  template <class T>
  void bind(std::string_view key, std::optional<T>& field, T otherwise, Range<T> range,
            std::string_view meaning) {
    if (!field) field = otherwise;
    bind(key, *field, range, meaning);
  }
  template <class Enum>
  void bind_choice(std::string_view key, Enum& field, std::span<const Choice> choices,
                   std::string_view meaning) {
    int index = static_cast<int>(field);
    bind_choice_value(key, index, choices, meaning);
    field = static_cast<Enum>(index);
  }
  // Reports that a rule over several fields does not hold; ignored if there was an error before.
  void fail(std::string_view key, std::string_view why);

  // Call after the last bind(). Returns the first error, or an error for a key that no bind()
  // named.
  [[nodiscard]] Status finish() const;
  [[nodiscard]] const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  // "dctcp: mss=1460B header=40B …"
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] const std::string* find(std::string_view key) const;
  void bind_choice_value(std::string_view key, int& value, std::span<const Choice> choices,
                         std::string_view meaning);
  // `parse` turns text into Result<T>; `print` turns a T into text that parses back.
  template <class T, class Parse, class Print>
  void bind_quantity(std::string_view key, T& field, Range<T> range, std::string_view meaning,
                     Parse parse, Print print);

  std::string_view transport_;
  const KeyValues& given_;
  std::optional<Error> error_;
  std::vector<ParameterInfo> parameters_;
};

}  // namespace thalweg::sim
