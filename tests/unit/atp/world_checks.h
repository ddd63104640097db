// What must hold in a World (world.h, which includes this at its end).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "atp/world.h"

namespace thalweg::proto::atp_test {

template <class Traits>
void World<Traits>::check(const Packet& packet) {
  const std::size_t j = place_of(packet.header.job);
  if (changes && !sound(packet)) return;
  if (packet.header.kind == wire::AtpKind::kParameter) return check_sum(j, packet);
  if (sound(packet) && sum_of(j, packet.header, false) == packet.payload) return;
  note(fmt::format("job {} sequence {}: a packet does not hold what its header names",
                   packet.header.job, packet.header.sequence));
}

template <class Traits>
void World<Traits>::check_sum(std::size_t j, const Packet& packet) {
  if (sum_of(j, packet.header, true) == packet.payload) return;
  note(fmt::format("job {} sequence {}: a wrong sum", packet.header.job, packet.header.sequence));
}

template <class Traits>
void World<Traits>::check_exponent(std::size_t j, const wire::AtpHeader& header,
                                   const AtpPlacement& placement) {
  const std::uint64_t first_time = wire::atp_first_time(header.sequence);
  std::int8_t most = tensor::kNoExponent;
  for (std::size_t w = 0; w < workers[j].size(); ++w) {
    most = std::max(most, shape_.jobs[j].need(w, first_time));
  }
  if (fit_of(placement.exponent, most, shape_.jobs[j].scaling.slack) == AtpFit::kRepeat) {
    note(fmt::format("sequence {}: exponent {} where {} is needed", first_time, placement.exponent,
                     most));
  }
  const std::pair as(header.sequence, placement.exponent);
  if (placed_as_.try_emplace({j, first_time}, as).first->second != as) {
    note(fmt::format("sequence {}: two workers take different sums", first_time));
  }
}

template <class Traits>
typename World<Traits>::Payload World<Traits>::sum_of(std::size_t j, const wire::AtpHeader& header,
                                                      bool all) const {
  Payload sum = {};
  bool first = true;
  for (std::size_t w = 0; w < workers[j].size(); ++w) {
    if (!all && !holds(header, j, w)) continue;
    const Payload one = Traits::contribution(header.job, w, header.sequence, header.elements);
    if (first) sum = one;
    if (!first) Traits::add(sum, one);
    first = false;
  }
  return sum;
}

}  // namespace thalweg::proto::atp_test
