// Result<T>: a value, or an error whose message a user can act on.
//
// Operational failures (a bad file, an unknown name, an unreachable peer) are Results. Bugs are
// CHECKs (base/check.h). The library never throws across its API.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace thalweg {

// What went wrong, in words for the user: the place, the value found and what is allowed.
class Error {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}

  [[nodiscard]] const std::string& message() const { return message_; }

  // The same error seen from further out: "leaf.yaml: line 3: …".
  [[nodiscard]] Error within(const std::string& place) const {
    return Error(place + ": " + message_);
  }

 private:
  std::string message_;
};

// Reading the value of a failed Result, or the error of a good one, is a bug and throws
// std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function returns either by its name.
  Result(T value)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

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
