#include "sim/workload/chakra_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topology/topology.h"

namespace thalweg::sim {
namespace {

using trace::ChakraAttribute;
using trace::ChakraCollective;
using trace::ChakraNode;
using trace::ChakraNodeType;

// Attributes of our own: the time that duration_micros rounds, and what a model has beside its
// nodes.
constexpr const char* kExactTime = "thalweg_duration_ps";
constexpr const char* kModelName = "thalweg_model";
constexpr const char* kModelBatch = "thalweg_batch";
// A gradient's bytes are rounded up to whole elements of this size.
constexpr std::uint64_t kElementBytes = size_of(DType::kFloat32);
constexpr std::size_t kNoBucket = std::numeric_limits<std::size_t>::max();

// The nonnegative number of an attribute, whatever its type. None: it has no such number.
std::optional<std::uint64_t> number_in(const ChakraAttribute& attribute) {
  if (const auto* number = std::get_if<std::uint64_t>(&attribute.value)) return *number;
  if (const auto* number = std::get_if<bool>(&attribute.value)) return *number ? 1 : 0;
  const auto* number = std::get_if<std::int64_t>(&attribute.value);
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

// What a node does in a step.
struct Task {
  bool allreduce = false;
  bool on_host = false;
  std::uint64_t bytes = 0;  // of an allreduce
  Duration time;            // of computing
};

class ChakraStep {
 public:
  ChakraStep(const trace::ChakraTrace& trace, std::string_view source)
      : trace_(trace), source_(source) {}

  Result<ModelTable> read();

 private:
  // How far a node is.
  struct State {
    std::size_t waits_for = 0;  // nodes that are not done
    Duration ready;
    std::size_t bucket = kNoBucket;  // the first to be ready of those that it waits for
    bool next_step = false;          // it waits for computing that waits for a bucket
  };
  struct Found {
    std::uint64_t id;
    std::uint64_t bytes;
    Duration ready;
    Duration forward;
  };

  [[nodiscard]] Error error(const ChakraNode& node, std::string_view problem) const {
    return Error(fmt::format("{}: node {}: {}", source_, node.id, problem));
  }
  Result<std::uint64_t> number_of(const ChakraNode& node, const char* name) const;
  Status read_group(const ChakraNode& node);
  Status read_collective(const ChakraNode& node, Task& task);
  Status read_time(const ChakraNode& node, Task& task);
  Status read_task(const ChakraNode& node);
  Status read_edges();
  Status run();
  Status run_node(std::size_t index);
  [[nodiscard]] ModelTable table() const;

  const trace::ChakraTrace& trace_;
  std::string source_;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::uint32_t>> followers_;
  std::vector<State> states_;
  std::optional<std::string> group_;  // of the allreduces
  Duration total_;
  // By (time at which it is ready, place in the file).
  using Ready = std::pair<Duration, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::array<Duration, 2> free_at_;  // the device and the host
  std::vector<Found> buckets_;
};

Result<std::uint64_t> ChakraStep::number_of(const ChakraNode& node, const char* name) const {
  const ChakraAttribute* attribute = node.find(name);
  if (attribute == nullptr) {
    return error(node, fmt::format("a {} needs the attribute {}", name_of(node.type), name));
  }
  if (const auto number = number_in(*attribute)) return *number;
  return error(node, fmt::format("{}: it must be a whole number from 0 on", name));
}

// The ranks of an allreduce. A job has one group, since every worker takes part in every bucket.
Status ChakraStep::read_group(const ChakraNode& node) {
  const ChakraAttribute* attribute = node.find("pg_name");
  const auto* text = attribute == nullptr ? nullptr : std::get_if<std::string>(&attribute->value);
  const std::string group = text == nullptr ? "" : *text;
  if (group_.value_or(group) != group) {
    return error(node, fmt::format("pg_name: an allreduce of group '{}', and others are of group "
                                   "'{}': one group is allowed",
                                   group, *group_));
  }
  group_ = group;
  return ok_status();
}

Status ChakraStep::read_collective(const ChakraNode& node, Task& task) {
  THALWEG_TRY(const std::uint64_t type, number_of(node, "comm_type"));
  if (type >= trace::kChakraCollectiveCount) {
    return error(node, fmt::format("comm_type: {}; from 0 to {} are allowed", type,
                                   trace::kChakraCollectiveCount - 1));
  }
  const auto collective = static_cast<ChakraCollective>(type);
  if (collective == ChakraCollective::kBarrier) return ok_status();
  if (collective != ChakraCollective::kAllReduce) {
    return error(node, fmt::format("comm_type: {}; a step has ALL_REDUCE and BARRIER only",
                                   name_of(collective)));
  }
  task.allreduce = true;
  THALWEG_TRY_STATUS(read_group(node));
  THALWEG_TRY(task.bytes, number_of(node, "comm_size"));
  constexpr std::uint64_t kMost = std::uint64_t{kMaxLayerParameters} * kElementBytes;
  if (task.bytes < 1 || task.bytes > kMost) {
    return error(node,
                 fmt::format("comm_size: {}; from 1 to {} bytes are allowed", task.bytes, kMost));
  }
  return ok_status();
}

Status ChakraStep::read_time(const ChakraNode& node, Task& task) {
  constexpr auto kMostUs = static_cast<std::uint64_t>(kMaxComputeTime.ps() / 1'000'000);
  if (node.duration_us > kMostUs) {
    return error(node, fmt::format("duration_micros: {}; at most a day, {}, is allowed",
                                   node.duration_us, kMostUs));
  }
  task.time = Duration::microseconds(static_cast<std::int64_t>(node.duration_us));
  if (node.find(kExactTime) != nullptr) {
    THALWEG_TRY(const std::uint64_t exact, number_of(node, kExactTime));
    if (exact > static_cast<std::uint64_t>(kMaxComputeTime.ps())) {
      return error(node, fmt::format("{}: {}; at most a day is allowed", kExactTime, exact));
    }
    task.time = Duration::picoseconds(static_cast<std::int64_t>(exact));
  }
  total_ += task.time;
  if (total_ > kMaxComputeTime) {
    return error(node, "duration_micros: all nodes up to this one compute for more than a day");
  }
  return ok_status();
}

Status ChakraStep::read_task(const ChakraNode& node) {
  Task& task = tasks_.emplace_back();
  if (node.find("is_cpu_op") != nullptr) {
    THALWEG_TRY(const std::uint64_t on_host, number_of(node, "is_cpu_op"));
    task.on_host = on_host != 0;
  }
  switch (node.type) {
    case ChakraNodeType::kCollective:
      return read_collective(node, task);
    case ChakraNodeType::kCompute:
    case ChakraNodeType::kMemoryLoad:
    case ChakraNodeType::kMemoryStore:
      return read_time(node, task);
    case ChakraNodeType::kMetadata:
      return ok_status();
    default:
      return error(node, fmt::format("type: {}; a step has METADATA_NODE, MEM_LOAD_NODE, "
                                     "MEM_STORE_NODE, COMP_NODE and COMM_COLL_NODE only",
                                     name_of(node.type)));
  }
}

Status ChakraStep::read_edges() {
  std::unordered_map<std::uint64_t, std::size_t> places;
  for (std::size_t i = 0; i < trace_.nodes.size(); ++i) {
    if (places.emplace(trace_.nodes[i].id, i).second) continue;
    return error(trace_.nodes[i], "id: several nodes have it");
  }
  followers_.resize(trace_.nodes.size());
  states_.resize(trace_.nodes.size());
  for (std::size_t i = 0; i < trace_.nodes.size(); ++i) {
    const ChakraNode& node = trace_.nodes[i];
    for (const auto& [name, ids] : {std::pair("ctrl_deps", &node.control_dependencies),
                                    std::pair("data_deps", &node.data_dependencies)}) {
      for (const std::uint64_t id : *ids) {
        const auto place = places.find(id);
        if (place == places.end()) {
          return error(node, fmt::format("{}: there is no node {}", name, id));
        }
        followers_[place->second].push_back(static_cast<std::uint32_t>(i));
        ++states_[i].waits_for;
      }
    }
  }
  return ok_status();
}

Status ChakraStep::run_node(std::size_t index) {
  const ChakraNode& node = trace_.nodes[index];
  const Task& task = tasks_[index];
  State& own = states_[index];
  Duration done = own.ready;
  std::size_t bucket = own.bucket;
  bool next_step = own.next_step;
  if (task.allreduce) {
    if (own.next_step) {
      return error(node, fmt::format("it waits for computing that waits for the allreduce of node "
                                     "{}, so the trace has several steps: one is allowed",
                                     buckets_[own.bucket].id));
    }
    if (buckets_.size() == kMaxModelLayers) {
      return error(node, fmt::format("the trace has more than {} allreduces", kMaxModelLayers));
    }
    bucket = std::min(bucket, buckets_.size());
    buckets_.push_back({node.id, task.bytes, own.ready, {}});
  } else if (task.time > Duration() && own.bucket != kNoBucket) {
    buckets_[own.bucket].forward += task.time;
    next_step = true;
  } else if (task.time > Duration()) {
    Duration& free_at = free_at_.at(task.on_host ? 1 : 0);
    done = std::max(own.ready, free_at) + task.time;
    free_at = done;
  }
  for (const std::uint32_t follower : followers_[index]) {
    State& state = states_[follower];
    state.ready = std::max(state.ready, done);
    state.bucket = std::min(state.bucket, bucket);
    state.next_step = state.next_step || next_step;
    if (--state.waits_for == 0) ready_.emplace(state.ready, follower);
  }
  return ok_status();
}

Status ChakraStep::run() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].waits_for == 0) ready_.emplace(Duration(), i);
  }
  std::size_t done = 0;
  while (!ready_.empty()) {
    const std::size_t next = ready_.top().second;
    ready_.pop();
    THALWEG_TRY_STATUS(run_node(next));
    ++done;
  }
  if (done < states_.size()) {
    const auto stuck =
        std::ranges::find_if(states_, [](const State& s) { return s.waits_for > 0; });
    const auto place = static_cast<std::size_t>(stuck - states_.begin());
    return error(trace_.nodes[place], "it depends on itself, through others");
  }
  if (buckets_.empty()) {
    return Error(fmt::format(
        "{}: there is no COMM_COLL_NODE with the comm_type ALL_REDUCE, so no step to run",
        source_));
  }
  buckets_.back().forward += std::max(free_at_[0], free_at_[1]) - buckets_.back().ready;
  return ok_status();
}

ModelTable ChakraStep::table() const {
  ModelTable table{
      .name = "chakra", .batch = 1, .sample = {}, .device = "a Chakra trace", .layers = {}};
  for (const ChakraAttribute& attribute : trace_.attributes) {
    const auto* text = std::get_if<std::string>(&attribute.value);
    if (attribute.name == kModelName && text != nullptr && topology::is_good_name(*text)) {
      table.name = *text;
    }
    const auto batch = number_in(attribute).value_or(0);
    if (attribute.name == kModelBatch && batch >= 1 && batch <= kMaxModelBatch) {
      table.batch = static_cast<std::int64_t>(batch);
    }
  }
  table.as_sent = true;
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    const Found& bucket = buckets_[b];
    const auto elements =
        static_cast<std::int64_t>((bucket.bytes + kElementBytes - 1) / kElementBytes);
    table.layers.push_back(
        {.name = fmt::format("bucket{}", b),
         .parameters = elements,
         .tensors = {elements},
         .forward = bucket.forward,
         .backward = bucket.ready - (b == 0 ? Duration() : buckets_[b - 1].ready)});
  }
  return table;
}

Result<ModelTable> ChakraStep::read() {
  for (const ChakraNode& node : trace_.nodes) THALWEG_TRY_STATUS(read_task(node));
  THALWEG_TRY_STATUS(read_edges());
  THALWEG_TRY_STATUS(run());
  return table();
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
    node.attributes.push_back({kExactTime, time.ps()});
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
  return ChakraStep(trace, source).read();
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
