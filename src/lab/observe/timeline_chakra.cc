#include "lab/observe/timeline_chakra.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace thalweg::lab {
namespace {

using trace::ChakraCollective;
using trace::ChakraNode;
using trace::ChakraNodeType;

constexpr double kMostUs = 1e15;  // thirty years

struct RecordedCall {
  ChakraCollective collective;
  std::string group;
  std::int64_t bytes;
  std::uint64_t start_us;
  std::uint64_t end_us;
};

std::optional<ChakraCollective> collective_of(std::string_view call) {
  using enum ChakraCollective;
  constexpr std::array<std::pair<std::string_view, ChakraCollective>, 9> kCalls{
      {{"allreduce", kAllReduce},
       {"reduce", kReduce},
       {"all_gather", kAllGather},
       {"gather", kGather},
       {"scatter", kScatter},
       {"broadcast", kBroadcast},
       {"all_to_all", kAllToAll},
       {"reduce_scatter", kReduceScatter},
       {"barrier", kBarrier}}};
  for (const auto& [name, collective] : kCalls) {
    if (name == call) return collective;
  }
  return std::nullopt;
}

// When the program has ended its iterations, in order.
using Iterations = std::vector<std::uint64_t>;

std::uint64_t microseconds_of(double time) {
  return static_cast<std::uint64_t>(std::llround(std::clamp(time, 0.0, kMostUs)));
}

void add_iteration(const nlohmann::json& event, Iterations& iterations) {
  if (event.value("args", nlohmann::json::object()).value("what", "") != "iteration") return;
  iterations.push_back(microseconds_of(event.at("ts").get<double>()));
}

// Adds the event if it is a collective that ended well, and counts it otherwise. The library of
// JSON throws where a member is missing or of another type.
void add_call(const nlohmann::json& event, std::vector<RecordedCall>& calls,
              std::size_t& left_out) {
  const nlohmann::json arguments = event.value("args", nlohmann::json::object());
  const std::string call = arguments.value("call", "");
  if (call.empty()) return;
  const auto collective = collective_of(call);
  if (!collective || arguments.at("outcome").get<std::string>() != "ok") {
    ++left_out;
    return;
  }
  const double start = std::clamp(event.at("ts").get<double>(), 0.0, kMostUs);
  const double length = std::clamp(event.at("dur").get<double>(), 0.0, kMostUs);
  calls.push_back({*collective, arguments.at("group").get<std::string>(),
                   arguments.at("bytes").get<std::int64_t>(), microseconds_of(start),
                   microseconds_of(start + length)});
}

// Builds the nodes of the calls, which come in the order in which they were made.
class CallNodes {
 public:
  CallNodes(trace::ChakraTrace& trace, const Iterations& iterations)
      : trace_(trace), iterations_(iterations) {}

  void add(const RecordedCall& call) {
    std::vector<std::uint64_t> waits_for;
    std::uint64_t begin = last_compute_ == 0 ? call.start_us : last_start_us_;
    if (waits_before(call)) {
      for (const Open& open : open_) {
        if (open.end_us > call.start_us) continue;
        waits_for.push_back(open.node);
        begin = std::max(begin, open.end_us);
      }
      std::erase_if(open_, [&](const Open& open) { return open.end_us <= call.start_us; });
    }
    if (last_compute_ != 0) waits_for.push_back(last_compute_);
    ChakraNode& before = trace_.add("computing", ChakraNodeType::kCompute, std::move(waits_for));
    before.start_us = begin;
    before.duration_us = call.start_us - begin;
    last_compute_ = before.id;
    add_collective(call);
    last_start_us_ = call.start_us;
  }

 private:
  // A collective that no node waits for yet.
  struct Open {
    std::uint64_t node;
    std::uint64_t end_us;
  };

  // Whether the program waited for calls between the call before and this one.
  [[nodiscard]] bool waits_before(const RecordedCall& call) const {
    if (iterations_.empty()) {
      return std::ranges::all_of(open_,
                                 [&](const Open& open) { return open.end_us <= call.start_us; });
    }
    const auto since = std::ranges::lower_bound(iterations_, last_start_us_);
    return since != iterations_.end() && *since <= call.start_us;
  }

  void add_collective(const RecordedCall& call) {
    ChakraNode& made =
        trace_.add(name_of(call.collective), ChakraNodeType::kCollective, {last_compute_});
    made.start_us = call.start_us;
    made.duration_us = call.end_us - call.start_us;
    made.attributes.push_back({"comm_type", static_cast<std::int64_t>(call.collective)});
    made.attributes.push_back({"comm_size", call.bytes});
    made.attributes.push_back({"pg_name", call.group});
    open_.push_back({made.id, call.end_us});
  }

  trace::ChakraTrace& trace_;
  const Iterations& iterations_;
  std::vector<Open> open_;
  std::uint64_t last_compute_ = 0;  // the last node that computes; 0: none
  std::uint64_t last_start_us_ = 0;
};

}  // namespace

Result<ChakraTimeline> chakra_of_timeline(const TimelineFile& file) {
  const nlohmann::json document = nlohmann::json::parse(file.content, nullptr, false);
  ChakraTimeline result;
  std::vector<RecordedCall> calls;
  Iterations iterations;
  try {
    result.rank = document.at("otherData").at("rank").get<int>();
    for (const nlohmann::json& event : document.at("traceEvents")) {
      add_call(event, calls, result.left_out);
      add_iteration(event, iterations);
    }
  } catch (const nlohmann::json::exception&) {
    return Error(fmt::format("{}: this is no timeline of Thalweg (THALWEG_TIMELINE writes them)",
                             file.path));
  }
  std::ranges::stable_sort(calls, {}, &RecordedCall::start_us);
  result.trace.version = trace::kChakraVersion;
  std::ranges::sort(iterations);
  CallNodes nodes(result.trace, iterations);
  for (const RecordedCall& call : calls) nodes.add(call);
  result.calls = calls.size();
  result.iterations = iterations.size();
  return result;
}

}  // namespace thalweg::lab
