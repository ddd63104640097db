#include "proto/collective/moving.h"

#include <algorithm>

namespace thalweg::proto {

StreamPlaces::StreamPlaces(const std::vector<std::uint32_t>& ways) {
  for (const std::uint32_t way : ways) places_.push_back({.way = way, .tried = way});
}

std::optional<std::uint32_t> StreamPlaces::look(std::uint32_t stream, bool silent, Time now) {
  Place& place = places_[stream];
  silent_anew_ = silent && place.tried == place.way;
  if (silent) {
    if (silent_anew_) {
      const bool soon = place.way == stream && place.came_back && now < *place.came_back + kSteady;
      place.wait = soon ? std::min(place.wait * 2, kLongestWait) : kFirstWait;
    }
    place.tried = (place.tried + 1) % streams();
    place.back_at = now + place.wait;
    return place.tried;
  }
  if (place.way == stream || now < place.back_at) return std::nullopt;
  place.back_at = now + place.wait;
  return stream;
}

void StreamPlaces::moved(std::uint32_t stream, std::uint32_t way, Time now) {
  Place& place = places_[stream];
  place.way = place.tried = way;
  place.back_at = now + place.wait;
  if (way == stream) place.came_back = now;
}

}  // namespace thalweg::proto
