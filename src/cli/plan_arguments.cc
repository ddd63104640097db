#include "cli/plan_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "plan/draw.h"
#include "plan/json.h"
#include "plan/msccl.h"
#include "trace/writer.h"

namespace thalweg {
namespace {

std::string link_label(const EvaluatedPlan& e, const Topology& topology) {
  const ArcId arc = e.accounting.slowest_arc;
  return arc.valid() ? topology.arc_name(arc) : "none";
}

std::string chrome_timeline(const EvaluatedPlan& e) {
  std::ostringstream out;
  ChromeTraceWriter writer(out);
  for (const TransferSpan& span : e.cost.timeline) {
    const PlanTransfer& t = e.plan.transfers[span.transfer];
    writer.write(TransferEvent{.start = span.start,
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

void PlanArguments::add_to(CLI::App& app) {
  app.add_option("--topology", topology,
                 "a topology file, or a shorthand such as "
                 "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G")
      ->required();
  app.add_option("--size", size, "size of the tensor, with a unit: 97MB, 64KiB")->required();
  app.add_option("--collective", collective,
                 "allreduce, reduce, broadcast, reduce-scatter, all-gather, all-to-all, gather, "
                 "scatter or mix");
  app.add_option("--root", root, "rank of the root of a reduce, broadcast, gather or scatter");
  app.add_option("--element-bytes", element_bytes, "size of one element: 1 to 16");
  app.add_option("--alpha", alpha, "cost model: what a message on an idle connection costs");
  app.add_option("--follow-up", follow_up,
                 "cost model: what one more message on a busy connection costs");
}

Result<std::unique_ptr<PlanSubject>> PlanSubject::from(const PlanArguments& arguments) {
  const auto named = [](const char* flag, const Error& error) { return error.within(flag); };
  const Result<Bytes> size = parse_bytes(arguments.size);
  if (!size.ok()) return named("--size", size.error());
  const Result<Collective> collective = parse_collective(arguments.collective);
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
  THALWEG_TRY(Topology topology, load_topology(arguments.topology));
  auto subject = std::make_unique<PlanSubject>(std::move(topology));
  subject->request.collective = *collective;
  subject->request.elements = size->count() / arguments.element_bytes;
  subject->request.element_bytes = arguments.element_bytes;
  subject->request.root = Rank(arguments.root);
  subject->options.cost.per_message = *alpha;
  subject->options.cost.per_follow_up = *follow_up;
  return subject;
}

void PlanOutputs::add_to(CLI::App& app) {
  app.add_option("--plan", plan, "write the plan as JSON (docs/plan-format.md)");
  app.add_option("--xml", xml, "write the plan as MSCCL XML");
  app.add_option("--svg", svg, "draw the plan on the topology");
  app.add_option("--dot", dot, "the same for Graphviz");
  app.add_option("--timeline", timeline,
                 "write the predicted transfers as a Chrome trace (chrome://tracing, Perfetto)");
  app.add_option("--tree", trees, "chunks to draw (default: the first four that differ)")
      ->delimiter(',');
}

Status PlanOutputs::write(const EvaluatedPlan& e, const Topology& topology) const {
  DrawOptions draw;
  for (const int tree : trees) {
    if (tree < 0 || static_cast<std::size_t>(tree) >= e.plan.chunks.size()) {
      return Error(fmt::format("--tree: {} is not a chunk of the plan: 0 to {}", tree,
                               static_cast<int>(e.plan.chunks.size()) - 1));
    }
    draw.chunks.emplace_back(tree);
  }
  draw.max_panels = std::max(draw.max_panels, static_cast<int>(draw.chunks.size()));
  std::vector<OutputFile> files;
  if (!plan.empty()) files.push_back({plan, plan_to_json(e.plan)});
  if (!xml.empty()) {
    Result<std::string> text = plan_to_msccl_xml(e.plan);
    if (!text.ok()) return text.error().within("--xml");
    files.push_back({xml, std::move(*text)});
  }
  if (!svg.empty()) {
    files.push_back({svg, plan_to_svg(e.plan, e.proof, topology, e.accounting, draw)});
  }
  if (!dot.empty()) files.push_back({dot, plan_to_dot(e.plan, e.proof, topology, draw)});
  if (!timeline.empty()) files.push_back({timeline, chrome_timeline(e)});
  return write_files(files);
}

nlohmann::ordered_json summary_json(const EvaluatedPlan& e, const Topology& topology) {
  return {{"scheme", e.plan.scheme},
          {"steps", e.proof.steps},
          {"cross_region_bytes", e.accounting.cross_region.count()},
          {"max_link_bytes", e.accounting.busiest_arc_bytes().count()},
          {"predicted_ms", e.cost.total.ms()},
          {"verified", true},
          {"limit_ms", e.accounting.slowest_arc_time.ms()},
          {"limiting_link", link_label(e, topology)},
          {"total_bytes", e.accounting.total.count()},
          {"peak_fan_in", e.accounting.peak_fan_in},
          {"staging_bytes", e.proof.peak_staging().count()},
          {"pipeline", e.pipeline},
          {"chunks", e.plan.chunks.size()},
          {"transfers", e.plan.transfers.size()}};
}

std::string summary_table(const std::vector<EvaluatedPlan>& plans, const Topology& topology) {
  std::vector<std::vector<std::string>> rows{{"scheme", "predicted", "limit", "steps",
                                              "across regions", "busiest link", "fan-in", "staging",
                                              "parts", "limiting link"}};
  for (const EvaluatedPlan& e : plans) {
    const Accounting& a = e.accounting;
    rows.push_back({e.plan.scheme, to_human(e.cost.total), to_human(a.slowest_arc_time),
                    std::to_string(e.proof.steps), to_human(a.cross_region),
                    to_human(a.busiest_arc_bytes()), std::to_string(a.peak_fan_in),
                    to_human(e.proof.peak_staging()), std::to_string(e.pipeline),
                    link_label(e, topology)});
  }
  return format_table(rows);
}

}  // namespace thalweg
