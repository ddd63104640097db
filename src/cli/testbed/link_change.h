// What a user asks of a link while the testbed runs: "rate=100M loss=1% delay=2ms".
#pragma once

#include <optional>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

struct LinkChange {
  struct Burst {
    double good = 1;  // packets between bursts, in the mean
    double bad = 1;   // packets lost in one, in the mean
  };
  std::optional<Bandwidth> rate;
  std::optional<Duration> delay;
  std::optional<double> loss;  // of each direction, in [0, 1)
  std::optional<Burst> burst;  // instead of `loss`
  std::optional<bool> up;

  // Words KEY=VALUE: rate=100M, delay=1ms, loss=1% or loss=0.01, burst=GOOD:BAD, up=yes|no.
  static Result<LinkChange> parse(std::string_view text);
};

}  // namespace thalweg
