// Divides the cores of a host among its ranks. Systems put processes that wake each other on one
// core and separate them only after milliseconds, in which thousands of small operations could run.
// Ranks that have cores of their own do not meet there.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::launch {

enum class Binding { kCore, kNone };

[[nodiscard]] const char* name_of(Binding binding);
// Parses --bind. Empty: none was given.
[[nodiscard]] Result<std::optional<Binding>> parse_binding(const std::string& text);

// The cores that this process may use. Threads of one core are neighbours in the list, and so are
// the cores of one socket. Empty: the system does not say.
[[nodiscard]] std::vector<int> usable_cores();

// Divides the list into `count` equal parts. What remains is spread over them. Requires at least
// `count` cores.
[[nodiscard]] std::vector<std::vector<int>> equal_shares(std::span<const int> cores, int count);

// The cores of each of a host's ranks; empty if they are not bound. Without a binding, ranks are
// bound if there is a core for each. It is an error if they must be bound and there is not.
[[nodiscard]] Result<std::vector<std::vector<int>>> cores_of_ranks(
    const std::optional<Binding>& binding, int count);

}  // namespace thalweg::launch
