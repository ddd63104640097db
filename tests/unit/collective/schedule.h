// Random schedules of a world: who calls when, how long frames take, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace thalweg::proto::collective_test {

enum class Trouble : std::uint8_t {
  kNone,     // ranks may be late, and leave when they are done
  kDeath,    // a rank's process ends, at any action
  kFreeze,   // a rank's process stops, at any action
  kNoCall,   // a rank does not make a call
  kDiffers,  // a rank makes another call than the others
};

struct ScheduleReport {
  std::string violation;  // empty: everything was as it must be
  std::uint64_t actions = 0;
  std::uint64_t stalls = 0;  // streams that a frame stalled
  bool failed = false;       // some call ended with an error
};

struct ScheduleOptions {
  Trouble trouble = Trouble::kNone;
  int most_ranks = 8;
  bool forgets_order = false;   // WorldOptions
  bool forgets_stalls = false;  // WorldOptions
};

// Everything else follows from the seed.
ScheduleReport run_schedule(const ScheduleOptions& options, std::uint64_t seed);

}  // namespace thalweg::proto::collective_test
