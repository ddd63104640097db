// What the points of a sweep gave, as JSON, CSV and a table.
#pragma once

#include <string>
#include <vector>

#include "sim/result_json.h"
#include "sim/sweep.h"

namespace thalweg {

// {"axes": […], "points": [{"at": {axis: label}, "result": {…}}]}
Json sweep_json(const std::vector<Axis>& axes, const std::vector<SweepPoint>& points,
                const std::vector<Json>& results);

// One line a point: its labels, then every number of its result.
std::string points_csv(const std::vector<Axis>& axes, const std::vector<SweepPoint>& points,
                       const std::vector<Json>& results);

// For people: the labels and what matters most.
std::vector<std::vector<std::string>> sweep_table(const std::vector<Axis>& axes,
                                                  const std::vector<SweepPoint>& points,
                                                  const std::vector<Json>& results);

}  // namespace thalweg
