#include "base/suggest.h"

#include <algorithm>

namespace thalweg {
namespace {

constexpr std::size_t kEdit = 2;
constexpr std::size_t kOtherCase = 1;
constexpr std::size_t kTinyWord = 2;  // a unit: 'h' does not mean 's'
constexpr std::size_t kShortWord = 5;
constexpr std::size_t kCharactersPerEdit = 3;
constexpr std::size_t kShortestPrefix = 3;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::size_t replacing(char a, char b) {
  if (a == b) return 0;
  return lower(a) == lower(b) ? kOtherCase : kEdit;
}

// The most half-edits between the word and a candidate that is near.
std::size_t limit_for(std::size_t length) {
  if (length <= kShortWord) return kEdit;
  return kEdit * (1 + (length - kShortWord + kCharactersPerEdit - 1) / kCharactersPerEdit);
}

bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

// The half-edits between the two, less if they differ by case alone or one begins with the other.
std::size_t distance_of(std::string_view word, std::string_view candidate) {
  const std::size_t edits = edit_distance(word, candidate);
  if (!begins_with(candidate, word)) return edits;
  if (candidate.size() == word.size()) return kOtherCase;
  return word.size() < kShortestPrefix ? edits : std::min(edits, limit_for(word.size()));
}

}  // namespace

// Optimal string alignment: the row of every prefix of `a` holds its distances from all prefixes of
// `b`, and follows from the two rows before it.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j * kEdit;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i * kEdit;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min(
          {last[j] + kEdit, row[j - 1] + kEdit, last[j - 1] + replacing(a[i - 1], b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + kEdit);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kMaxSuggestLength) return std::nullopt;
  const std::string* best = nullptr;
  std::size_t least = 2 * limit_for(word.size()) + 2;
  for (const std::string& candidate : candidates) {
    if (candidate == word) return std::nullopt;
    if (candidate.empty() || candidate.size() > kMaxSuggestLength) continue;
    const bool same_first = lower(word[0]) == lower(candidate[0]);
    if (word.size() <= kTinyWord && !same_first) continue;
    const std::size_t distance = distance_of(word, candidate);
    if (distance > limit_for(word.size())) continue;
    // Doubled, so that the first letter decides between equals.
    const std::size_t rank = 2 * distance + (same_first ? 0 : 1);
    if (rank >= least) continue;
    least = rank;
    best = &candidate;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::optional<std::string> meant = nearest(word, candidates);
  return meant ? "; did you mean '" + *meant + "'?" : "";
}

}  // namespace thalweg
