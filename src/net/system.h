// The clock of the real world, and errors of system calls as Results.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

// CLOCK_MONOTONIC, from a second before this process first asked.
[[nodiscard]] Time monotonic_now();

// Of all threads of this process, user and system.
[[nodiscard]] double processor_seconds_of_process();

// "cannot bind to 10.0.0.1:7000: Address already in use", from errno.
[[nodiscard]] Error system_error(const std::string& what, int error_number);

// From the system's source of random numbers, which nobody can guess.
[[nodiscard]] std::uint64_t random_number();

// An integer option of a socket. False: the system does not know it or refuses the value.
bool set_option(int fd, int level, int name, int value);

}  // namespace thalweg
