// What tests of the C API expect of the codes that its calls return.
#pragma once

#include <thalweg/thalweg.h>

#include <gtest/gtest.h>

#include <string>

namespace thalweg::capi {

inline void expect_ok(int code) { EXPECT_EQ(code, THALWEG_OK) << thalweg_last_error(); }

// The call was refused, and the text holds `word`.
inline void expect_refused(int code, const std::string& word) {
  EXPECT_EQ(code, THALWEG_BAD_ARGUMENT) << word;
  EXPECT_NE(std::string(thalweg_last_error()).find(word), std::string::npos)
      << thalweg_last_error();
}

}  // namespace thalweg::capi
