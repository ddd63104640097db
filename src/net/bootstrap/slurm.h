// The lists that Slurm puts into the environment of its tasks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace thalweg {

// "node07" of "node[07-09,12],other": empty if the list is none.
[[nodiscard]] std::string slurm_first_host(std::string_view list);

// 3 of "4(x2),3" for node 2; nothing if the list does not reach so far or is none.
[[nodiscard]] std::optional<int> slurm_tasks_of_node(std::string_view list, int node);

}  // namespace thalweg
