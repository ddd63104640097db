#include "net/system.h"

#include <sys/socket.h>
#include <time.h>

#include <system_error>

namespace thalweg {

Time monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time::at(Duration::nanoseconds(now.tv_sec * 1'000'000'000 + now.tv_nsec));
}

Error system_error(const std::string& what, int error_number) {
  return Error(what + ": " + std::generic_category().message(error_number));
}

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

}  // namespace thalweg
