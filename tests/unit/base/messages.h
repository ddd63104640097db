// Helpers for tests of errors, and of texts with one thing wrong in them.
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

// Code and rank of an error: "timeout", or "peer lost, rank 1".
template <class T>
std::string kind_of(const Result<T>& result) {
  if (result.ok()) return "no error";
  const std::string code = name_of(result.error().code());
  const auto rank = result.error().rank();
  return rank ? code + ", rank " + std::to_string(*rank) : code;
}

// Returns `original` with the first `old_text` replaced. Requires that it occurs.
inline std::string replaced(std::string_view original, std::string_view old_text,
                            std::string_view new_text) {
  std::string text(original);
  const std::size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return at == std::string::npos ? text : text.replace(at, old_text.size(), new_text);
}

}  // namespace thalweg
