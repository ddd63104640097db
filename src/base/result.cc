#include <thalweg/result.h>

#include "base/check.h"

namespace thalweg {

void fail_without_value(const Error& error) {
  check_failed(__FILE__, __LINE__, "result.ok()",
               fmt::format("the value of a Result was taken, but it holds an error ({}): {}",
                           name_of(error.code()), error.message()));
}

void fail_without_error() {
  check_failed(__FILE__, __LINE__, "!result.ok()",
               "the error of a Result was taken, but it holds a value");
}

}  // namespace thalweg
