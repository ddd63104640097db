// The results of a sweep's points as JSON, CSV and a table.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/result_json.h"
#include "sim/scenario/sweep.h"

namespace thalweg::lab {

// {"axes": […], "points": [{"at": {axis: label}, "result": {…}}]}
sim::Json sweep_json(const std::vector<sim::Axis>& axes, const std::vector<sim::SweepPoint>& points,
                     const std::vector<sim::Json>& results);

// One line per point: its labels, then every value of its result.
std::string points_csv(const std::vector<sim::Axis>& axes,
                       const std::vector<sim::SweepPoint>& points,
                       const std::vector<sim::Json>& results);

// For people: the labels and the most important numbers.
std::vector<std::vector<std::string>> sweep_table(const std::vector<sim::Axis>& axes,
                                                  const std::vector<sim::SweepPoint>& points,
                                                  const std::vector<sim::Json>& results);

}  // namespace thalweg::lab
