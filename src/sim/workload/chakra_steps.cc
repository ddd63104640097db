#include "sim/workload/chakra_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "sim/workload/model.h"

namespace thalweg::sim {
namespace {

using trace::ChakraAttribute;
using trace::ChakraCollective;
using trace::ChakraNode;
using trace::ChakraNodeType;

}  // namespace

Error ChakraSteps::error(const ChakraNode& node, std::string_view problem) const {
  return Error(fmt::format("{}: node {}: {}", source_, node.id, problem));
}

Result<std::uint64_t> ChakraSteps::number_of(const ChakraNode& node, const char* name) const {
  const ChakraAttribute* attribute = node.find(name);
  if (attribute == nullptr) {
    return error(node, fmt::format("a {} needs the attribute {}", name_of(node.type), name));
  }
  if (const auto number = attribute->number()) return *number;
  return error(node, fmt::format("{}: it must be a whole number from 0 on", name));
}

Status ChakraSteps::read_collective(const ChakraNode& node, Task& task) {
  THALWEG_TRY(const std::uint64_t type, number_of(node, "comm_type"));
  if (type >= trace::kChakraCollectiveCount) {
    return error(node, fmt::format("comm_type: {}; from 0 to {} are allowed", type,
                                   trace::kChakraCollectiveCount - 1));
  }
  task.call.collective = static_cast<ChakraCollective>(type);
  if (task.call.collective == ChakraCollective::kBarrier) return ok_status();
  task.calls = true;
  const ChakraAttribute* group = node.find("pg_name");
  const auto* name = group == nullptr ? nullptr : std::get_if<std::string>(&group->value);
  if (name != nullptr) task.call.group = *name;
  if (task.call.collective == ChakraCollective::kBroadcast && node.find("comm_size") != nullptr) {
    THALWEG_TRY(task.call.bytes, number_of(node, "comm_size"));
  }
  if (task.call.collective != ChakraCollective::kAllReduce) return ok_status();
  THALWEG_TRY(task.call.bytes, number_of(node, "comm_size"));
  constexpr std::uint64_t kMost = std::uint64_t{kMaxLayerParameters} * kChakraElementBytes;
  if (task.call.bytes < 1 || task.call.bytes > kMost) {
    return error(
        node, fmt::format("comm_size: {}; from 1 to {} bytes are allowed", task.call.bytes, kMost));
  }
  return ok_status();
}

Status ChakraSteps::read_time(const ChakraNode& node, Task& task) {
  constexpr auto kMostUs = static_cast<std::uint64_t>(kMaxComputeTime.ps() / 1'000'000);
  if (node.duration_us > kMostUs) {
    return error(node, fmt::format("duration_micros: {}; at most a day, {}, is allowed",
                                   node.duration_us, kMostUs));
  }
  task.time = Duration::microseconds(static_cast<std::int64_t>(node.duration_us));
  if (node.find(kChakraExactTime) != nullptr) {
    THALWEG_TRY(const std::uint64_t exact, number_of(node, kChakraExactTime));
    if (exact > static_cast<std::uint64_t>(kMaxComputeTime.ps())) {
      return error(node, fmt::format("{}: {}; at most a day is allowed", kChakraExactTime, exact));
    }
    task.time = Duration::picoseconds(static_cast<std::int64_t>(exact));
  }
  total_ += task.time;
  if (total_ > kMaxComputeTime) {
    return error(node, "duration_micros: all nodes up to this one compute for more than a day");
  }
  return ok_status();
}

Status ChakraSteps::read_task(const ChakraNode& node) {
  Task& task = tasks_.emplace_back();
  task.call.node = tasks_.size() - 1;
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

Status ChakraSteps::read_edges() {
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

void ChakraSteps::leave_out_small_broadcasts() {
  std::uint64_t most = 0;
  for (const Task& task : tasks_) {
    if (task.call.collective == ChakraCollective::kAllReduce) {
      most = std::max(most, task.call.bytes);
    }
  }
  for (Task& task : tasks_) {
    const bool small = task.call.bytes > 0 && task.call.bytes <= most / kSmallBroadcast;
    if (task.call.collective == ChakraCollective::kBroadcast && small) task.calls = false;
  }
}

Status ChakraSteps::divide() {
  std::vector<Place> places(states_.size());
  std::vector<std::size_t> waits(states_.size());
  std::vector<std::size_t> next;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    waits[i] = states_[i].waits_for;
    if (waits[i] == 0) next.push_back(i);
  }
  std::size_t done = 0;
  std::uint32_t last = 0;  // step with a collective
  for (; !next.empty(); ++done) {
    const std::size_t index = next.back();
    next.pop_back();
    Place& place = places[index];
    State& state = states_[index];
    if (tasks_[index].calls) {
      if (place.after_computing) place = {.step = place.step + 1};
      state.step = place.step;
      place.after_call = true;
      last = std::max(last, place.step);
    } else {
      state.step = place.step + (place.after_call ? 1 : 0);
      place.after_computing |= place.after_call && tasks_[index].time > Duration();
    }
    for (const std::uint32_t follower : followers_[index]) {
      Place& other = places[follower];
      if (other.step < place.step) other = {.step = place.step};
      if (other.step == place.step) {
        other.after_call |= place.after_call;
        other.after_computing |= place.after_computing;
      }
      if (--waits[follower] == 0) next.push_back(follower);
    }
  }
  if (done < states_.size()) {
    const auto stuck = std::ranges::find_if(waits, [](std::size_t count) { return count > 0; });
    return error(trace_.nodes[static_cast<std::size_t>(stuck - waits.begin())],
                 "it depends on itself, through others");
  }
  // The only step has the next forward pass in it.
  if (last == 0) std::ranges::for_each(states_, [](State& state) { state.step = 0; });
  steps_.resize(last + 2);  // after the last step there may be computing
  free_at_.resize(last + 2);
  return ok_status();
}

Status ChakraSteps::run_node(std::size_t index) {
  const Task& task = tasks_[index];
  const State& own = states_[index];
  ChakraStep& step = steps_[own.step];
  Duration done = own.ready;
  std::size_t call = own.call;
  if (task.calls) {
    if (step.size() == kMaxModelLayers) {
      return error(trace_.nodes[index],
                   fmt::format("the step has more than {} collectives", kMaxModelLayers));
    }
    call = std::min(call, step.size());
    step.push_back(task.call);
    step.back().ready = own.ready;
  } else if (task.time > Duration() && own.call != kNoCall) {
    step[own.call].forward += task.time;
  } else if (task.time > Duration()) {
    Processors& processors = free_at_[own.step];
    Duration& free_at = task.on_host ? processors.host : processors.device;
    done = std::max(own.ready, free_at) + task.time;
    free_at = done;
  }
  for (const std::uint32_t follower : followers_[index]) {
    State& state = states_[follower];
    if (state.step == own.step) {
      state.ready = std::max(state.ready, done);
      state.call = std::min(state.call, call);
    }
    if (--state.waits_for == 0) ready_.emplace(state.ready, follower);
  }
  return ok_status();
}

Status ChakraSteps::run() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].waits_for == 0) ready_.emplace(Duration(), i);
  }
  while (!ready_.empty()) {
    const std::size_t next = ready_.top().second;
    ready_.pop();
    THALWEG_TRY_STATUS(run_node(next));
  }
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s].empty()) continue;
    ChakraCall& front = steps_[s].back();
    front.forward += std::max(free_at_[s].device, free_at_[s].host) - front.ready;
  }
  return ok_status();
}

Result<std::vector<ChakraStep>> ChakraSteps::read() {
  for (const ChakraNode& node : trace_.nodes) THALWEG_TRY_STATUS(read_task(node));
  leave_out_small_broadcasts();
  THALWEG_TRY_STATUS(read_edges());
  THALWEG_TRY_STATUS(divide());
  THALWEG_TRY_STATUS(run());
  std::erase_if(steps_, [](const ChakraStep& step) { return step.empty(); });
  return std::move(steps_);
}

}  // namespace thalweg::sim
