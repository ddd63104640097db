// The operating system's clock, random numbers, socket options, and errors of system calls.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::net {

// CLOCK_MONOTONIC, counted from one second before the first call in this process.
[[nodiscard]] Time monotonic_now();

// Processor time of all threads of this process, user and system together, in seconds.
[[nodiscard]] double processor_seconds_of_process();

// An error like "cannot bind to 10.0.0.1:7000: Address already in use": `what` and the text of
// errno, with the code that fits errno.
[[nodiscard]] Error system_error(const std::string& what, int error_number);

// The name of this machine; "?" if it has none.
[[nodiscard]] std::string host_name();

// An unpredictable number from the system's random source.
[[nodiscard]] std::uint64_t random_number();

// Sets an integer option of a socket. Returns false if the system does not know the option or
// refuses the value.
bool set_option(int fd, int level, int name, int value);

}  // namespace thalweg::net
