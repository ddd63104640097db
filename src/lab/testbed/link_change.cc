#include "lab/testbed/link_change.h"

#include <fmt/core.h>

#include <charconv>
#include <string>

#include "base/fraction.h"
#include "topology/format/text.h"
#include "topology/topology.h"

namespace thalweg::lab {
namespace {

Result<LinkChange::Burst> parse_burst(std::string_view text) {
  LinkChange::Burst burst;
  const std::size_t colon = text.find(':');
  const auto read = [](std::string_view part, double& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() && value >= 1 && value <= 1e12;
  };
  if (colon == std::string_view::npos || !read(text.substr(0, colon), burst.good) ||
      !read(text.substr(colon + 1), burst.bad)) {
    return Error(fmt::format(
        "'{}': write the mean packets between bursts and lost in one, as in 1000:5", text));
  }
  return burst;
}

Status take(std::string_view key, std::string_view value, LinkChange& change) {
  if (key == "rate") {
    THALWEG_TRY(change.rate, parse_bandwidth(value));
    if (change.rate->bps() < 1 || *change.rate > topology::kMaxRate) {
      return Error(
          fmt::format("{} is out of range: 1 b/s to {}", value, to_string(topology::kMaxRate)));
    }
  } else if (key == "delay") {
    THALWEG_TRY(change.delay, parse_duration(value));
    if (*change.delay < Duration() || *change.delay > topology::kMaxDelay) {
      return Error(
          fmt::format("{} is out of range: 0 to {}", value, to_string(topology::kMaxDelay)));
    }
  } else if (key == "loss") {
    THALWEG_TRY(change.loss, parse_fraction(value));
  } else if (key == "burst") {
    THALWEG_TRY(change.burst, parse_burst(value));
  } else if (key == "up") {
    if (value != "yes" && value != "no") {
      return Error(fmt::format("'{}': yes and no are allowed", value));
    }
    change.up = value == "yes";
  } else {
    return Error(
        "is unknown; allowed are rate=, delay=, loss=, burst=GOOD:BAD and up=yes or up=no");
  }
  return ok_status();
}

}  // namespace

Result<LinkChange> LinkChange::parse(std::string_view text) {
  LinkChange change;
  const std::vector<topology::Word> words = topology::split_words(text);
  if (words.empty()) return Error("nothing to change: as in rate=100M loss=1%");
  for (const topology::Word& word : words) {
    const std::size_t equals = word.text.find('=');
    const std::string_view key = word.text.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.text.substr(equals + 1);
    const Status taken = take(key, value, change);
    if (!taken.ok()) return taken.error().within(fmt::format("'{}'", key));
  }
  if (change.loss && change.burst) return Error("loss and burst: give one of them");
  return change;
}

}  // namespace thalweg::lab
