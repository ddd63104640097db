#include "net/io/system.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace thalweg::net {

static std::int64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

Time monotonic_now() {
  // Time holds 106 days, which is less than a machine's uptime may be.
  constexpr std::int64_t kFirst = 1'000'000'000;
  static const std::int64_t start_ns = clock_ns() - kFirst;
  return Time::at(Duration::nanoseconds(clock_ns() - start_ns));
}

double processor_seconds_of_process() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

static ErrorCode code_of_errno(int error_number) {
  switch (error_number) {
    case ETIMEDOUT:
    case EAGAIN:
      return ErrorCode::kTimeout;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
      return ErrorCode::kPeerLost;
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EADDRINUSE:
      return ErrorCode::kNoResource;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
    case EINVAL:
    case ENODEV:
    case EADDRNOTAVAIL:
      return ErrorCode::kBadArgument;
    default:
      return ErrorCode::kInternal;
  }
}

Error system_error(const std::string& what, int error_number) {
  return {code_of_errno(error_number), what + ": " + std::generic_category().message(error_number)};
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  ssize_t got = 0;
  do {
    got = getrandom(&number, sizeof(number), 0);
  } while (got < 0 && errno == EINTR);
  CHECK(got == sizeof(number), "the system gives no random numbers");
  return number;
}

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "?";
}

}  // namespace thalweg::net
