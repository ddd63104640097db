// What the pointers that C programs hold point to.
#pragma once

#include <thalweg/communicator.h>
#include <thalweg/thalweg.h>

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): names of the C API
struct thalweg_communicator {
  thalweg::Communicator all;
};

struct thalweg_operation {
  thalweg::Operation operation;
};
// NOLINTEND(readability-identifier-naming)

}  // extern "C"
