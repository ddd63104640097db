// A change of a link while the testbed runs, as a user writes it: "rate=100M loss=1% delay=2ms".
#pragma once

#include <optional>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::lab {

// What is not set stays as it is.
struct LinkChange {
  struct Burst {
    double good = 1;  // mean number of packets between bursts
    double bad = 1;   // mean number of packets that are lost in a burst
  };
  std::optional<Bandwidth> rate;
  std::optional<Duration> delay;
  std::optional<double> loss;  // probability in each direction, in [0, 1)
  std::optional<Burst> burst;  // instead of `loss`
  std::optional<bool> up;

  // Words KEY=VALUE: rate=100M, delay=1ms, loss=1% or loss=0.01, burst=GOOD:BAD, up=yes|no.
  static Result<LinkChange> parse(std::string_view text);
};

}  // namespace thalweg::lab
