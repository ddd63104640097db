// Which of several transfers goes first: at senders, and among those that wait for grants.
#pragma once

#include <compare>
#include <cstdint>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::proto {

struct TransferOrder {
  // Lower urgency goes first. Off: urgency counts for nothing.
  bool by_urgency = true;
  // Then fewer bytes left go first. Off: the older transfer does.
  bool by_size = false;
  // With by_size: a transfer that waits gains on those that came after it, by so many bytes for
  // each byte that the line could have carried meanwhile. 0: a long transfer waits for as long as
  // shorter ones come.
  double ageing = 0;

  // `prefix` names the struct in errors.
  [[nodiscard]] Status validate(const char* prefix) const;
  // The lower goes first. All transfers age alike, so two scores compare the same at any time.
  [[nodiscard]] std::int64_t score(std::int64_t bytes_left, Time since, Bandwidth line_rate) const;
};

// The place of a transfer among all that a host has to send; the lowest is sent first.
struct SendKey {
  bool first_time = false;  // its receiver has not asked for segments again
  std::uint32_t urgency = 0;
  std::int64_t score = 0;
  std::uint64_t tie = 0;
  auto operator<=>(const SendKey&) const = default;
};

}  // namespace thalweg::proto
