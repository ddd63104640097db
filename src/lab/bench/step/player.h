// A player replays steps on one rank, with one library. All ranks play the same turns in the same
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "lab/bench/step/libraries.h"
#include "lab/bench/step/schedule.h"
#include "lab/bench/step/settings.h"

namespace thalweg::lab::step {

// Steps that follow each other.
struct Turn {
  std::vector<double> steps_ms;  // of the timed steps
  std::int64_t wrong = 0;        // elements whose value has changed since the start
};

class Player {
 public:
  virtual ~Player() = default;
  // Plays `warm_up` steps, further ones until the library has made its choices, and then `timed`
  // steps whose times it returns.
  [[nodiscard]] virtual Result<Turn> play(int warm_up, int timed) = 0;
  // What the library has chosen by trials, for each kind of calls.
  [[nodiscard]] virtual std::vector<AutoDecision> choices() const { return {}; }
  // The version of the library, for the report.
  [[nodiscard]] virtual std::string version() const = 0;
};

// A player of our own library. Meets the other ranks. The schedule of `settings` must outlive it.
[[nodiscard]] Result<std::unique_ptr<Player>> make_own_player(const Library& library,
                                                              const Settings& settings);

// A player that is a process of Python with torch.distributed (bench/step/gloo_rank.py). It ends
// with the player. To be called before there are threads. Does not wait until the process is ready.
[[nodiscard]] Result<std::unique_ptr<Player>> make_gloo_player(const Settings& settings);

// The value of an element. Every rank has the same values, so an average does not change them.
[[nodiscard]] constexpr float value_of(std::int64_t element) {
  return static_cast<float>(1 + element % 61) * 0x1p-6F;
}

}  // namespace thalweg::lab::step
