// What tests say about errors, and about text with one thing wrong in it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

template <class T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().message();
}

// `original` with the first `old_text`, which must be there, replaced.
inline std::string replaced(std::string_view original, std::string_view old_text,
                            std::string_view new_text) {
  std::string text(original);
  const std::size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return at == std::string::npos ? text : text.replace(at, old_text.size(), new_text);
}

}  // namespace thalweg
