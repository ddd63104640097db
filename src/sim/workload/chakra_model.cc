#include "sim/workload/chakra_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/workload/chakra_steps.h"
#include "topology/topology.h"

namespace thalweg::sim {
namespace {

using trace::ChakraAttribute;
using trace::ChakraCollective;
using trace::ChakraNode;
using trace::ChakraNodeType;

static_assert(kChakraElementBytes == size_of(DType::kFloat32));

// Attributes of our own: what a model has beside its nodes.
constexpr const char* kModelName = "thalweg_model";
constexpr const char* kModelBatch = "thalweg_batch";

bool are_alike(const ChakraStep& one, const ChakraStep& other) {
  return std::ranges::equal(one, other, &ChakraCall::is_like);
}

// The steps that communicate as most of all steps do. None: no kind of step is in the majority.
std::vector<ChakraStep> usual_steps(std::vector<ChakraStep> steps) {
  // The vote of Boyer and Moore: pairs of steps that differ cancel each other.
  std::size_t candidate = 0;
  std::size_t votes = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (votes == 0) candidate = s;
    if (are_alike(steps[candidate], steps[s])) {
      ++votes;
    } else {
      --votes;
    }
  }
  const std::size_t count = steps.size();
  if (count == 0) return steps;
  const ChakraStep usual = steps[candidate];
  std::erase_if(steps, [&](const ChakraStep& step) { return !are_alike(step, usual); });
  if (steps.size() * 2 <= count) steps.clear();
  return steps;
}

// A step must have allreduces only, all of one group: every worker takes part in every bucket.
Status check_step(const ChakraStep& step, const trace::ChakraTrace& trace,
                  std::string_view source) {
  for (const ChakraCall& call : step) {
    const std::uint64_t id = trace.nodes[call.node].id;
    if (call.collective != ChakraCollective::kAllReduce) {
      return Error(fmt::format("{}: node {}: comm_type: {}; a step has ALL_REDUCE and BARRIER only",
                               source, id, name_of(call.collective)));
    }
    if (call.group != step.front().group) {
      return Error(
          fmt::format("{}: node {}: pg_name: an allreduce of group '{}', and others are "
                      "of group '{}': one group is allowed",
                      source, id, call.group, step.front().group));
    }
  }
  return ok_status();
}

Duration median(std::vector<Duration> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

ModelTable table_of(const trace::ChakraTrace& trace) {
  ModelTable table{
      .name = "chakra", .batch = 1, .sample = {}, .device = "a Chakra trace", .layers = {}};
  for (const ChakraAttribute& attribute : trace.attributes) {
    const auto* text = std::get_if<std::string>(&attribute.value);
    if (attribute.name == kModelName && text != nullptr && topology::is_good_name(*text)) {
      table.name = *text;
    }
    const auto batch = attribute.number().value_or(0);
    if (attribute.name == kModelBatch && batch >= 1 && batch <= kMaxModelBatch) {
      table.batch = static_cast<std::int64_t>(batch);
    }
  }
  table.as_sent = true;
  return table;
}

// The layer of the bucket that is the b-th to be ready, with the median times of the steps.
ModelLayer layer_of(const std::vector<ChakraStep>& steps, std::size_t b) {
  const auto elements = static_cast<std::int64_t>(
      (steps.front()[b].bytes + kChakraElementBytes - 1) / kChakraElementBytes);
  std::vector<Duration> forward;
  std::vector<Duration> backward;
  for (const ChakraStep& step : steps) {
    forward.push_back(step[b].forward);
    backward.push_back(step[b].ready - (b == 0 ? Duration() : step[b - 1].ready));
  }
  return {.name = fmt::format("bucket{}", b),
          .parameters = elements,
          .tensors = {elements},
          .forward = median(std::move(forward)),
          .backward = median(std::move(backward))};
}

// Adds nodes one after the other on one time axis, where the network takes no time.
class ChakraWriter {
 public:
  explicit ChakraWriter(trace::ChakraTrace& trace) : trace_(trace) {}

  // Returns the node's id.
  std::uint64_t compute(std::string name, Duration time, std::vector<std::uint64_t> waits_for) {
    const std::uint64_t begin = rounded_us();
    now_ += time;
    ChakraNode& node = trace_.add(std::move(name), ChakraNodeType::kCompute, std::move(waits_for));
    node.start_us = begin;
    node.duration_us = rounded_us() - begin;
    node.attributes.push_back({kChakraExactTime, time.ps()});
    return node.id;
  }
  std::uint64_t allreduce(std::string name, Bytes size, std::vector<std::uint64_t> waits_for) {
    ChakraNode& node =
        trace_.add(std::move(name), ChakraNodeType::kCollective, std::move(waits_for));
    node.start_us = rounded_us();
    // Readers of Chakra's own feeder take these as int64_val.
    node.attributes.push_back(
        {"comm_type", static_cast<std::int64_t>(ChakraCollective::kAllReduce)});
    node.attributes.push_back({"comm_size", size.count()});
    return node.id;
  }

 private:
  [[nodiscard]] std::uint64_t rounded_us() const {
    return static_cast<std::uint64_t>((now_.ps() + 500'000) / 1'000'000);
  }

  trace::ChakraTrace& trace_;
  Duration now_;
};

}  // namespace

Result<ModelTable> model_from_chakra(std::string_view content, std::string_view source) {
  THALWEG_TRY(const trace::ChakraTrace trace, trace::chakra_from(content, source));
  THALWEG_TRY(std::vector<ChakraStep> all, ChakraSteps(trace, source).read());
  if (all.empty()) {
    return Error(fmt::format(
        "{}: there is no COMM_COLL_NODE with the comm_type ALL_REDUCE, so no step to run", source));
  }
  const std::size_t count = all.size();
  const std::vector<ChakraStep> steps = usual_steps(std::move(all));
  if (steps.empty()) {
    return Error(
        fmt::format("{}: the trace has {} steps, and no more than half of them "
                    "communicate alike, so there is no usual step to run",
                    source, count));
  }
  THALWEG_TRY_STATUS(check_step(steps.front(), trace, source));
  ModelTable table = table_of(trace);
  if (count > 1) {
    table.device = fmt::format("a Chakra trace, {} of {} steps", steps.size(), count);
  }
  for (std::size_t b = steps.front().size(); b-- > 0;) table.layers.push_back(layer_of(steps, b));
  return table;
}

trace::ChakraTrace chakra_of(const ModelTable& model, ChakraWait wait) {
  trace::ChakraTrace trace{.version = trace::kChakraVersion,
                           .attributes = {{kModelName, model.name}, {kModelBatch, model.batch}},
                           .nodes = {}};
  ChakraWriter writer(trace);
  std::vector<std::uint64_t> sums(model.layers.size());
  std::uint64_t last = 0;  // the node that computed last; none yet
  for (std::size_t l = model.layers.size(); l-- > 0;) {
    const ModelLayer& layer = model.layers[l];
    std::vector<std::uint64_t> before;
    if (last != 0) before.push_back(last);
    last = writer.compute("backward " + layer.name, layer.backward, before);
    sums[l] = writer.allreduce("allreduce " + layer.name, model.size_of_layer(l), {last});
  }
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const ModelLayer& layer = model.layers[l];
    std::vector<std::uint64_t> before{last};
    if (wait == ChakraWait::kOwnLayer) before.push_back(sums[l]);
    if (wait == ChakraWait::kAllLayers && l == 0) {
      before.insert(before.end(), sums.rbegin(), sums.rend());
    }
    last = writer.compute("forward " + layer.name, layer.forward, before);
  }
  return trace;
}

}  // namespace thalweg::sim
