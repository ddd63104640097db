// Experiment files: any text gives an error, or an experiment whose claims and plots can be
// computed from results of any shape.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/scenario/experiment.h"
#include "small_loaders.h"

namespace {

constexpr std::size_t kMostPoints = 64;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto experiment =
      thalweg::sim::experiment_from_yaml(text, "fuzz", thalweg::small_loaders());
  if (!experiment.ok()) return 0;
  thalweg::sim::ExperimentResult result{.axes = experiment->axes, .points = {}, .results = {}};
  const auto points = thalweg::sim::points_of(experiment->axes);
  if (!points.ok() || points->size() > kMostPoints) return 0;
  result.points = *points;
  for (std::size_t i = 0; i < points->size(); ++i) {
    result.results.push_back({{"finished", true}, {"loss", 0.5}, {"jobs", {{{"x", i}}}}});
  }
  for (const auto& claim : experiment->claims) (void)thalweg::sim::evaluate(claim, result);
  for (const auto& plot : experiment->plots) (void)thalweg::sim::lines_of(plot, result);
  return 0;
}
