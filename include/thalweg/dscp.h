// The DSCP code points of the eight queues, the same for sockets and for the switches that
// `thalweg tune thresholds` configures.
#pragma once

#include <array>
#include <cstdint>

namespace thalweg {

// DSCP of each queue, 0 first.
using DscpTable = std::array<std::uint8_t, 8>;

// Of the pool for local use (RFC 2474, xxxx11). Their upper three bits rise with urgency: switches
// that map DSCP / 8 to a queue, as many do by default, order them rightly unconfigured.
inline constexpr DscpTable kDefaultDscp{59, 51, 43, 35, 27, 19, 11, 3};

}  // namespace thalweg
