#include "lab/planning/plan_subject.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "lab/console.h"
#include "lab/files.h"
#include "plan/draw/draw.h"
#include "plan/format/json.h"
#include "plan/format/msccl.h"
#include "trace/writer.h"

namespace thalweg::lab {
namespace {

std::string link_label(const plan::EvaluatedPlan& e, const topology::Topology& topology) {
  const topology::ArcId arc = e.accounting.slowest_arc;
  return arc.valid() ? topology.arc_name(arc) : "none";
}

std::string chrome_timeline(const plan::EvaluatedPlan& e) {
  std::ostringstream out;
  trace::ChromeTraceWriter writer(out);
  for (const plan::TransferSpan& span : e.cost.timeline) {
    const plan::PlanTransfer& t = e.plan.transfers[span.transfer];
    writer.write(trace::TransferEvent{.start = span.start,
                                      .end = span.end,
                                      .source = t.source,
                                      .target = t.target,
                                      .chunk = t.chunk,
                                      .size = e.plan.size_of(t.chunk)});
  }
  writer.finish();
  return std::move(out).str();
}

}  // namespace

Result<std::unique_ptr<PlanSubject>> PlanSubject::from(const PlanArguments& arguments) {
  const auto named = [](const char* flag, const Error& error) { return error.within(flag); };
  const Result<Bytes> size = parse_bytes(arguments.size);
  if (!size.ok()) return named("--size", size.error());
  if (size->count() == 0) {
    return Error(fmt::format("--size: '{}': there is nothing to plan for: write a size above 0",
                             arguments.size));
  }
  const Result<plan::Collective> collective = plan::parse_collective(arguments.collective);
  if (!collective.ok()) return named("--collective", collective.error());
  const Result<Duration> alpha = parse_duration(arguments.alpha);
  if (!alpha.ok()) return named("--alpha", alpha.error());
  const Result<Duration> follow_up = parse_duration(arguments.follow_up);
  if (!follow_up.ok()) return named("--follow-up", follow_up.error());
  if (arguments.element_bytes < 1 || arguments.element_bytes > 16) {
    return Error(
        fmt::format("--element-bytes: {} is not allowed: 1 to 16", arguments.element_bytes));
  }
  if (size->count() % arguments.element_bytes != 0) {
    return Error(
        fmt::format("--size: {} is not a whole number of elements of {} bytes (see "
                    "--element-bytes)",
                    arguments.size, arguments.element_bytes));
  }
  THALWEG_TRY(topology::Topology topology, load_topology(arguments.topology));
  auto subject = std::make_unique<PlanSubject>(std::move(topology));
  subject->request.collective = *collective;
  subject->request.elements = size->count() / arguments.element_bytes;
  subject->request.element_bytes = arguments.element_bytes;
  subject->request.root = Rank(arguments.root);
  subject->options.cost.per_message = *alpha;
  subject->options.cost.per_follow_up = *follow_up;
  return subject;
}

Status PlanOutputs::write(const plan::EvaluatedPlan& e, const topology::Topology& topology) const {
  plan::DrawOptions draw;
  for (const int tree : trees) {
    if (tree < 0 || static_cast<std::size_t>(tree) >= e.plan.chunks.size()) {
      return Error(fmt::format("--tree: {} is not a chunk of the plan: 0 to {}", tree,
                               static_cast<int>(e.plan.chunks.size()) - 1));
    }
    draw.chunks.emplace_back(tree);
  }
  draw.max_panels = std::max(draw.max_panels, static_cast<int>(draw.chunks.size()));
  std::vector<OutputFile> files;
  if (!plan.empty()) files.push_back({plan, plan::plan_to_json(e.plan)});
  if (!xml.empty()) {
    Result<std::string> text = plan::plan_to_msccl_xml(e.plan);
    if (!text.ok()) return text.error().within("--xml");
    files.push_back({xml, std::move(*text)});
  }
  if (!svg.empty()) {
    files.push_back({svg, plan::plan_to_svg(e.plan, e.proof, topology, e.accounting, draw)});
  }
  if (!dot.empty()) files.push_back({dot, plan::plan_to_dot(e.plan, e.proof, topology, draw)});
  if (!timeline.empty()) files.push_back({timeline, chrome_timeline(e)});
  return write_files(files);
}

nlohmann::ordered_json summary_json(const plan::EvaluatedPlan& e,
                                    const topology::Topology& topology) {
  return {{"scheme", e.plan.scheme},
          {"steps", e.proof.steps},
          {"cross_region_bytes", e.accounting.cross_region.count()},
          {"max_link_bytes", e.accounting.busiest_arc_bytes().count()},
          {"predicted_ms", e.predicted.ms()},
          {"fluid_ms", e.extent.held ? nlohmann::ordered_json(e.cost.total.ms()) : nullptr},
          {"verified", true},
          {"limit_ms", e.accounting.slowest_arc_time.ms()},
          {"limiting_link", link_label(e, topology)},
          {"total_bytes", e.accounting.total.count()},
          {"peak_fan_in", e.accounting.peak_fan_in},
          {"staging_bytes", e.proof.peak_staging().count()},
          {"pipeline", e.pipeline},
          {"chunks", e.extent.chunks},
          {"transfers", e.extent.transfers}};
}

std::string summary_table(const std::vector<plan::EvaluatedPlan>& plans,
                          const topology::Topology& topology,
                          const std::vector<Duration>& simulated) {
  std::vector<std::vector<std::string>> rows{{"scheme", "predicted", "fluid", "limit", "steps",
                                              "across regions", "busiest link", "fan-in", "staging",
                                              "parts", "limiting link"}};
  if (!simulated.empty()) rows.front().insert(rows.front().begin() + 2, "simulated");
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const plan::EvaluatedPlan& e = plans[i];
    const plan::Accounting& a = e.accounting;
    rows.push_back(
        {e.plan.scheme, to_human(e.predicted), e.extent.held ? to_human(e.cost.total) : "–",
         to_human(a.slowest_arc_time), std::to_string(e.proof.steps), to_human(a.cross_region),
         to_human(a.busiest_arc_bytes()), std::to_string(a.peak_fan_in),
         to_human(e.proof.peak_staging()), std::to_string(e.pipeline), link_label(e, topology)});
    if (!simulated.empty()) rows.back().insert(rows.back().begin() + 2, to_human(simulated[i]));
  }
  return format_table(rows);
}

}  // namespace thalweg::lab
