// Whether something listens where a user says that it does. Commands that look at a running process
// ask this first, so that a wrong address is answered at once.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::lab {

// What a command expects at an address, for its errors.
struct Listener {
  std::string what;  // "switch"
  int usual_port = 0;
  std::string hint;  // how to start it
};

// Looks up "host:port" and connects once. The error says what is wrong with the address and, where
// it can, what was probably meant. A refused connection is an error at once: ranks wait for a
// switch that starts later, but a user who looks does not. If there is no answer by `until`, the
// caller may try on its own: no error.
Status check_listening(const std::string& address, const Listener& expected, Time until);

}  // namespace thalweg::lab
