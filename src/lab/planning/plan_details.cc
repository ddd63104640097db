#include "lab/planning/plan_details.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "lab/console.h"
#include "lab/planning/plan_subject.h"

namespace thalweg::lab {
namespace {

// A table of the steps: how many transfers each has, how many of them reduce, and their bytes.
std::string steps_text(const plan::EvaluatedPlan& e) {
  const std::vector<plan::PlanStep>& steps = e.extent.steps;
  std::vector<std::vector<std::string>> rows{{"step", "transfers", "that reduce", "bytes"}};
  for (std::size_t s = 0; s < steps.size(); ++s) {
    rows.push_back({std::to_string(s + 1), std::to_string(steps[s].transfers),
                    std::to_string(steps[s].reduces), to_human(steps[s].bytes)});
  }
  return "\n" + format_table(rows);
}

// A table of the first `most` transfers.
std::string transfers_text(const plan::EvaluatedPlan& e, const topology::Topology& topology,
                           std::size_t most) {
  std::vector<std::vector<std::string>> rows{
      {"transfer", "from", "to", "chunk", "after", "does", "bytes", "step"}};
  const std::size_t shown = std::min(most, e.plan.transfers.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const plan::PlanTransfer& t = e.plan.transfers[i];
    rows.push_back({std::to_string(i), topology.node(topology.host(t.source)).name,
                    topology.node(topology.host(t.target)).name, std::to_string(t.chunk.value()),
                    std::to_string(t.after),
                    t.kind == plan::TransferKind::kReduce ? "reduce" : "copy",
                    to_human(e.plan.size_of(t.chunk)), std::to_string(e.proof.step_of[i])});
  }
  if (!e.extent.held) return fmt::format("\n{} transfers\n", e.extent.transfers);
  std::string text = "\n" + format_table(rows);
  if (shown < e.plan.transfers.size()) {
    text += fmt::format("… and {} more (--plan F writes all, --transfers N shows N)\n",
                        e.plan.transfers.size() - shown);
  }
  return text;
}

// A table of the bytes into and out of each region; nothing if there is only one region.
std::string regions_text(const plan::EvaluatedPlan& e, const topology::Topology& topology) {
  if (topology.regions().size() < 2) return "";
  std::vector<std::vector<std::string>> rows{{"region", "hosts", "oversubscribed", "in", "out"}};
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    const topology::Region& region = topology.regions()[r];
    const plan::RegionTraffic& traffic = e.accounting.regions[r];
    rows.push_back({region.name, std::to_string(region.hosts.size()),
                    fmt::format("{:.3g}:1", region.oversubscription), to_human(traffic.in),
                    to_human(traffic.out)});
  }
  return "\n" + format_table(rows);
}

}  // namespace

nlohmann::ordered_json plan_details_json(const plan::EvaluatedPlan& e,
                                         const topology::Topology& topology) {
  nlohmann::ordered_json result = summary_json(e, topology);
  auto& regions = result["regions"] = nlohmann::ordered_json::array();
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    regions.push_back({{"region", topology.regions()[r].name},
                       {"hosts", topology.regions()[r].hosts.size()},
                       {"oversubscription", topology.regions()[r].oversubscription},
                       {"bytes_in", e.accounting.regions[r].in.count()},
                       {"bytes_out", e.accounting.regions[r].out.count()}});
  }
  auto& links = result["links"] = nlohmann::ordered_json::array();
  for (std::size_t a = 0; a < topology.arc_count(); ++a) {
    const topology::ArcId id(static_cast<std::int32_t>(a));
    const topology::Arc arc = topology.arc(id);
    links.push_back(
        {{"from", topology.node(arc.from).name},
         {"to", topology.node(arc.to).name},
         {"bytes", e.accounting.arc_bytes[a]},
         {"busy_ms", 1e3 * e.accounting.arc_bytes[a] / arc.spec.rate.bytes_per_second()}});
  }
  auto& memory = result["staging_bytes_by_rank"] = nlohmann::ordered_json::array();
  for (const Bytes staging : e.proof.staging) memory.push_back(staging.count());
  return result;
}

std::string plan_details_text(const plan::EvaluatedPlan& e, const topology::Topology& topology,
                              std::size_t most_transfers) {
  return regions_text(e, topology) + steps_text(e) + transfers_text(e, topology, most_transfers);
}

}  // namespace thalweg::lab
