// Experiment files: whatever the text, an error or an experiment whose claims and plots can be
// worked out from results of any shape.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/experiment.h"
#include "topology/load.h"

namespace {

constexpr int kMostHosts = 16;
constexpr std::size_t kMostPoints = 64;

thalweg::Result<thalweg::Topology> load_topology(const std::string& text) {
  if (text.size() > 100) return thalweg::Error("too long for a fuzzer");
  auto topology = thalweg::topology_from_shorthand(text);
  if (topology.ok() && topology->host_count() > kMostHosts) {
    return thalweg::Error("too large for a fuzzer");
  }
  return topology;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto experiment = thalweg::experiment_from_yaml(
      text, "fuzz",
      {.topology = load_topology,
       .model = [](const std::string&) -> thalweg::Result<thalweg::ModelTable> {
         return thalweg::Error("no models here");
       }});
  if (!experiment.ok()) return 0;
  thalweg::ExperimentResult result{.axes = experiment->axes, .points = {}, .results = {}};
  const auto points = thalweg::points_of(experiment->axes);
  if (!points.ok() || points->size() > kMostPoints) return 0;
  result.points = *points;
  for (std::size_t i = 0; i < points->size(); ++i) {
    result.results.push_back({{"finished", true}, {"loss", 0.5}, {"jobs", {{{"x", i}}}}});
  }
  for (const auto& claim : experiment->claims) (void)thalweg::evaluate(claim, result);
  for (const auto& plot : experiment->plots) (void)thalweg::lines_of(plot, result);
  return 0;
}
