// Result<T>: a value, or an error with a code that a program can decide by and a message that a
// user can act on.
//
//   auto sum = all->allreduce(TensorSpan::of(gradient));
//   if (!sum.ok() && sum.error().code() == ErrorCode::kPeerLost) { … all->shrink(window) … }
//
// Operational failures (a bad file, an unknown name, an unreachable peer) are Results. Bugs are
// CHECKs (base/check.h). The library never throws across its API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace thalweg {

// What kind of failure an error is. docs/errors.md says what to do about each. The numbers travel
// between ranks, so a new code gets the next number.
enum class ErrorCode : std::uint8_t {
  // What the caller gave is not allowed: an argument, an option, a flag, an environment variable or
  // a file. The same call fails again.
  kBadArgument = 0,
  // A deadline, or another limit of time, has passed.
  kTimeout = 1,
  // Another process is gone: it died or left, it cannot be reached, or its connection broke.
  kPeerLost = 2,
  // Ranks of one job differ: in the calls they make, in their settings, keys or versions.
  kMismatch = 3,
  // It was given up on purpose: cancelled by a caller, or because this rank has left.
  kCancelled = 4,
  // This machine or a switch has no room: no memory, port, file descriptor or free table entry.
  kNoResource = 5,
  // Something that should not happen: a peer sent nonsense, or the system refused a simple request.
  kInternal = 6,
};
inline constexpr int kErrorCodeCount = 7;

constexpr const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadArgument:
      return "bad argument";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kNoResource:
      return "no resource";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "?";
}

class Error {
 public:
  // An error without a code is a bad argument, because most functions fail only if they are given
  // something that is not allowed. What fails in another way names its code.
  explicit Error(std::string message) : Error(ErrorCode::kBadArgument, std::move(message)) {}
  Error(ErrorCode code, std::string message, std::optional<int> rank = {})
      : message_(std::move(message)), rank_(rank), code_(code) {}

  [[nodiscard]] ErrorCode code() const { return code_; }
  // The rank to blame, in the communicator whose call failed. None: no single rank is to blame, or
  // it is not known.
  [[nodiscard]] std::optional<int> rank() const { return rank_; }
  // For the user: where it went wrong, the value that was found and what is allowed.
  [[nodiscard]] const std::string& message() const { return message_; }

  // The same error with the place where it happened in front: "leaf.yaml: line 3: …".
  [[nodiscard]] Error within(const std::string& place) const {
    return {code_, place + ": " + message_, rank_};
  }
  // The same error with this rank to blame, unless it blames one already.
  [[nodiscard]] Error blaming(int rank) const { return {code_, message_, rank_.value_or(rank)}; }

 private:
  std::string message_;
  std::optional<int> rank_;
  ErrorCode code_;
};

// Ends the process with a message: a value was taken from a Result that holds `error`, or an error
// from one that holds a value.
[[noreturn]] void fail_without_value(const Error& error);
[[noreturn]] void fail_without_error();

// Taking the value of a failed Result, or the error of a good one, is a bug: it fails a CHECK.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function can return a value or an error as it is.
  Result(T value)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    if (!ok()) fail_without_value(error());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    if (!ok()) fail_without_value(error());
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const {
    if (ok()) fail_without_error();
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

// A Result that carries nothing but success.
using Status = Result<std::monostate>;
inline Status ok_status() { return std::monostate{}; }

}  // namespace thalweg

// Binds `declaration` to the value of `expression`, or returns its error from the enclosing
// function:  THALWEG_TRY(const Bytes size, parse_bytes(text));
#define THALWEG_TRY(declaration, expression) \
  THALWEG_TRY_IMPL(THALWEG_CONCAT(try_result_, __LINE__), declaration, expression)
#define THALWEG_TRY_IMPL(name, declaration, expression) \
  auto name = (expression);                             \
  if (!name.ok()) return name.error();                  \
  declaration = std::move(name).value()
// The same for a Status.
#define THALWEG_TRY_STATUS(expression) \
  if (auto status = (expression); !status.ok()) return status.error()
#define THALWEG_CONCAT(a, b) THALWEG_CONCAT_IMPL(a, b)
#define THALWEG_CONCAT_IMPL(a, b) a##b
