// StreamPlaces: by which ways the streams of a connection go, and when one of them moves to another
// way, without I/O. The rank that made the streams keeps one for each connection with several.
//
// Stream i has way i as its own. If nothing passes by the way that it takes, it tries the next, one
// at a look. When it is on another way than its own, it tries to go back, at first after a second;
// a way that dies soon after the stream came back is tried less often from then on.
//
// Verbs: look() says where a stream is to be moved now, and moved() that it was.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace thalweg::proto {

class StreamPlaces {
 public:
  // How often to look at the streams.
  static constexpr Duration kLookEvery = Duration::milliseconds(250);

  // `ways`: the way that each stream was connected by; there are as many ways as streams.
  explicit StreamPlaces(const std::vector<std::uint32_t>& ways = {});

  [[nodiscard]] std::uint32_t streams() const { return static_cast<std::uint32_t>(places_.size()); }
  [[nodiscard]] std::uint32_t way_of(std::uint32_t stream) const { return places_[stream].way; }
  // Returns the way to which the stream is to be moved; none: it stays. `silent`: nothing passes by
  // the way that it takes.
  [[nodiscard]] std::optional<std::uint32_t> look(std::uint32_t stream, bool silent, Time now);
  // Whether the last look() was the first to find the stream's way silent.
  [[nodiscard]] bool silent_anew() const { return silent_anew_; }
  // The stream goes by this way now.
  void moved(std::uint32_t stream, std::uint32_t way, Time now);

 private:
  // A path that dies again within this time after a stream came back is tried less often.
  static constexpr Duration kSteady = Duration::milliseconds(30'000);
  static constexpr Duration kFirstWait = Duration::milliseconds(1000);
  static constexpr Duration kLongestWait = Duration::milliseconds(30'000);

  struct Place {
    std::uint32_t way = 0;
    std::uint32_t tried = 0;             // the way that was tried last
    Duration wait = kFirstWait;          // between tries to go back to its own
    Time back_at = {};                   // the next such try
    std::optional<Time> came_back = {};  // the last one that succeeded
  };
  std::vector<Place> places_;  // [stream]
  bool silent_anew_ = false;
};

}  // namespace thalweg::proto
