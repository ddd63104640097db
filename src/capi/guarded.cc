#include "capi/guarded.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <thalweg/thalweg.h>
#include <thalweg/version.h>

namespace thalweg::capi {
namespace {

constexpr std::size_t kMostText = 2000;  // bytes of a text that is kept

struct LastError {
  std::array<char, kMostText + 1> text = {};
  int rank = -1;
};
thread_local LastError last_error;

constexpr int code_of(ErrorCode code) { return static_cast<int>(code) + 1; }

static_assert(code_of(ErrorCode::kBadArgument) == THALWEG_BAD_ARGUMENT);
static_assert(code_of(ErrorCode::kTimeout) == THALWEG_TIMEOUT);
static_assert(code_of(ErrorCode::kPeerLost) == THALWEG_PEER_LOST);
static_assert(code_of(ErrorCode::kMismatch) == THALWEG_MISMATCH);
static_assert(code_of(ErrorCode::kCancelled) == THALWEG_CANCELLED);
static_assert(code_of(ErrorCode::kNoResource) == THALWEG_NO_RESOURCE);
static_assert(code_of(ErrorCode::kInternal) == THALWEG_INTERNAL);
static_assert(kErrorCodeCount == THALWEG_INTERNAL, "the C API has every code");

static_assert(kVersionMajor == THALWEG_VERSION_MAJOR && kVersionMinor == THALWEG_VERSION_MINOR &&
                  kVersionPatch == THALWEG_VERSION_PATCH,
              "version.h and thalweg.h say the same version");

}  // namespace

int keep_error(ErrorCode code, const char* text, int rank) noexcept {
  const std::size_t length = std::min(std::strlen(text), kMostText);
  std::memmove(last_error.text.data(), text, length);
  last_error.text[length] = '\0';
  last_error.rank = rank;
  return code_of(code);
}

int keep_error(const Error& error) noexcept {
  return keep_error(error.code(), error.message().c_str(), error.rank().value_or(-1));
}

}  // namespace thalweg::capi

using thalweg::capi::last_error;

int thalweg_version(void) {
  return 10000 * thalweg::kVersionMajor + 100 * thalweg::kVersionMinor + thalweg::kVersionPatch;
}
const char* thalweg_version_text(void) { return thalweg::kVersion; }

const char* thalweg_code_name(int code) {
  if (code == THALWEG_OK) return "ok";
  if (code < THALWEG_OK || code > thalweg::kErrorCodeCount) return "?";
  return thalweg::name_of(static_cast<thalweg::ErrorCode>(code - 1));
}
const char* thalweg_last_error(void) { return last_error.text.data(); }
int thalweg_last_error_rank(void) { return last_error.rank; }
