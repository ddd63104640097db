// The DSCP code points of the eight queues, the same for sockets and for the switches that
// `thalweg tune thresholds` configures.
#pragma once

#include <array>
#include <cstdint>

namespace thalweg {

// DSCP of each queue, 0 first.
using DscpTable = std::array<std::uint8_t, 8>;

// Code points of the pool for local use (RFC 2474, xxxx11). Their upper three bits rise with
// urgency, so switches that map DSCP / 8 to a queue, as many do by default, order them correctly
// without configuration.
inline constexpr DscpTable kDefaultDscp{59, 51, 43, 35, 27, 19, 11, 3};

}  // namespace thalweg
