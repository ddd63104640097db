// Everything about one plan, as `thalweg plan show` prints it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "plan/planner.h"
#include "topology/topology.h"

namespace thalweg::lab {

// The plan's summary, and its traffic by region, link and rank.
[[nodiscard]] nlohmann::ordered_json plan_details_json(const plan::EvaluatedPlan& evaluated,
                                                       const topology::Topology& topology);

// Tables of the regions' traffic, of the steps, and of the first `most_transfers` transfers.
[[nodiscard]] std::string plan_details_text(const plan::EvaluatedPlan& evaluated,
                                            const topology::Topology& topology,
                                            std::size_t most_transfers);

}  // namespace thalweg::lab
