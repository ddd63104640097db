// RequestRate: how many requests one address may send to a switch's control socket. It does no I/O.
//
// An address may send `per_second` requests at once, and gets them back evenly over a second.
//
// Invariant: memory for at most kMostAddresses addresses. Those that have asked for nothing for a
// second are forgotten, because they may send as much as one that was never seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/units.h"

namespace thalweg::switchd {

class RequestRate {
 public:
  static constexpr std::size_t kMostAddresses = 4096;

  // Requires a number above 0.
  explicit RequestRate(std::uint32_t per_second) : cost_(Duration::seconds(1) / per_second) {}

  // Whether a request of this address may be served now. Counts it if so.
  [[nodiscard]] bool admit(const std::string& address, Time now);

 private:
  void forget_idle(Time now);

  Duration cost_;
  // When the requests of each address that were served so far have been given back.
  std::map<std::string, Time> paid_;
};

}  // namespace thalweg::switchd
