// Turns what the C++ API returns, and what the standard library throws, into codes of the C API.
#pragma once

#include <exception>
#include <new>

#include <thalweg/result.h>

namespace thalweg::capi {

// Keeps the text and the rank of an error for thalweg_last_error() in this thread, and returns its
// code. Allocates nothing.
int keep_error(ErrorCode code, const char* text, int rank) noexcept;
int keep_error(const Error& error) noexcept;

// Runs `body`, which returns a Status, and returns its code. Nothing is thrown out of it.
template <class Body>
int guarded(Body body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? 0 : keep_error(status.error());
  } catch (const std::bad_alloc&) {
    return keep_error(ErrorCode::kNoResource, "no memory is left", -1);
  } catch (const std::exception& thrown) {
    return keep_error(ErrorCode::kInternal, thrown.what(), -1);
  } catch (...) {
    return keep_error(ErrorCode::kInternal, "something was thrown that is no std::exception", -1);
  }
}

}  // namespace thalweg::capi
