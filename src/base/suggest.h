// Finds the word that was probably meant by an unknown one: a mistyped command, option,
// scheme, unit or file name.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thalweg {

// Longer words are not compared: a suggestion is for names, and comparing takes the product of the
// lengths.
inline constexpr std::size_t kMaxSuggestLength = 128;

// How many half-edits make `b` of `a`. Inserting, removing or replacing a character, and swapping
// two neighbours, counts 2; changing only the case of a letter counts 1.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that is nearest to `word`: at most one edit away for words of up to five
// characters, and one more for every three characters beyond. A candidate that differs only by
// case, or that begins with the word (from three characters on), is near, too. Among equally near
// ones the first wins, and one with the same first letter before the others; words of one or two
// characters need it. None if no candidate is near, or the word is one of them.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

// "; did you mean 'ring'?", to end an error with; empty if no candidate is near.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string> candidates);

// The same for any range of names.
template <class Names>
[[nodiscard]] std::string did_you_mean(std::string_view word, const Names& names) {
  std::vector<std::string> candidates;
  for (const auto& name : names) candidates.emplace_back(name);
  return did_you_mean(word, std::span<const std::string>(candidates));
}

}  // namespace thalweg
