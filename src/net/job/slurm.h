// Parses the lists that Slurm puts into the environment of its tasks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace thalweg::net {

// The first host of a list: "node07" of "node[07-09,12],other". Empty if the text is not a list.
[[nodiscard]] std::string slurm_first_host(std::string_view list);

// The number of tasks of a node: 3 of "4(x2),3" for node 2. None if the list is too short, or the
// text is not a list.
[[nodiscard]] std::optional<int> slurm_tasks_of_node(std::string_view list, int node);

}  // namespace thalweg::net
