// Scenario files: any text gives an error or a scenario, and a small scenario also runs without a
// complaint of the checkers.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/scenario/scenario_run.h"
#include "small_loaders.h"

namespace {

// Larger scenarios are only read, not run, so that inputs stay fast.
constexpr std::size_t kMostFlows = 8;
constexpr std::uint64_t kMostBytes = 100'000;
constexpr thalweg::Duration kShortestInterval = thalweg::Duration::microseconds(200);

bool is_small(const thalweg::sim::Scenario& scenario) {
  if (!scenario.jobs.empty() || scenario.flows.size() > kMostFlows) return false;
  for (const auto& flow : scenario.flows) {
    if (static_cast<std::uint64_t>(flow.size.count()) > kMostBytes) return false;
  }
  if (scenario.background.size() > kMostFlows) return false;
  for (const auto& background : scenario.background) {
    if (background.options.every < kShortestInterval) return false;
    if (background.options.sizes.mean_bytes() > static_cast<double>(kMostBytes)) return false;
  }
  return scenario.until <= thalweg::Duration::milliseconds(10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto scenario = thalweg::sim::scenario_from_yaml(text, "fuzz", thalweg::small_loaders());
  if (!scenario.ok() || !is_small(*scenario)) return 0;
  const auto result = thalweg::sim::run_scenario(*scenario, {});
  if (!result.ok() || !result->violations.empty()) std::abort();
  return 0;
}
