// The training steps in a Chakra trace of one rank (trace/chakra.h), for chakra_model.h.
//
// The nodes are run once on a network that takes no time, with one processor for the device's nodes
// and one for the host's. A collective is ready when all that it depends on is done.
//
// Where a trace has several steps, a step begins with the computing that waits for a collective of
// the step before. A collective belongs to a later step than another one if it waits for computing
// that waits for the other. Each step is run as if what it needs of earlier steps was there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "trace/chakra.h"

namespace thalweg::sim {

// Bytes of a gradient are rounded up to whole elements of this size.
inline constexpr std::uint64_t kChakraElementBytes = 4;
// An attribute of our own: the time that duration_micros rounds.
inline constexpr const char* kChakraExactTime = "thalweg_duration_ps";

// A broadcast is small if the largest allreduce of the trace is at least as many times larger.
inline constexpr std::uint64_t kSmallBroadcast = 64;

// What one node communicates.
struct ChakraCall {
  std::size_t node = 0;  // its place in the trace
  trace::ChakraCollective collective = trace::ChakraCollective::kAllReduce;
  std::string group;
  std::uint64_t bytes = 0;  // of an allreduce or a broadcast
  Duration ready;           // since the start of the step
  Duration forward;         // the computing of the next step that waits for it and no earlier one

  [[nodiscard]] bool is_like(const ChakraCall& other) const {
    return collective == other.collective && group == other.group && bytes == other.bytes;
  }
};

// In the order in which they are ready.
using ChakraStep = std::vector<ChakraCall>;

class ChakraSteps {
 public:
  ChakraSteps(const trace::ChakraTrace& trace, std::string_view source)
      : trace_(trace), source_(source) {}

  // The steps that communicate. Errors name `source`, the node and the field. Call it once.
  Result<std::vector<ChakraStep>> read();

 private:
  static constexpr std::size_t kNoCall = std::numeric_limits<std::size_t>::max();
  // What a node does in a step.
  struct Task {
    bool calls = false;
    bool on_host = false;
    ChakraCall call;
    Duration time;  // of computing
  };
  // Where in the row of steps a node is, by what it waits for.
  struct Place {
    std::uint32_t step = 0;
    bool after_call = false;       // it waits for a collective of this step
    bool after_computing = false;  // it waits for computing that does
  };
  // How far a node is.
  struct State {
    std::size_t waits_for = 0;  // nodes that are not done
    std::uint32_t step = 0;     // in which it runs
    Duration ready;
    std::size_t call = kNoCall;  // the first to be ready of those of its step that it waits for
  };
  struct Processors {
    Duration device;
    Duration host;
  };

  [[nodiscard]] Error error(const trace::ChakraNode& node, std::string_view problem) const;
  Result<std::uint64_t> number_of(const trace::ChakraNode& node, const char* name) const;
  Status read_collective(const trace::ChakraNode& node, Task& task);
  Status read_time(const trace::ChakraNode& node, Task& task);
  Status read_task(const trace::ChakraNode& node);
  // DDP sends the buffers of a module, such as those of batch normalization, by small broadcasts.
  // They take no time here.
  void leave_out_small_broadcasts();
  Status read_edges();
  // Gives every node its step.
  Status divide();
  Status run();
  Status run_node(std::size_t index);

  const trace::ChakraTrace& trace_;
  std::string source_;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::uint32_t>> followers_;
  std::vector<State> states_;
  Duration total_;
  // By (time at which it is ready, place in the file).
  using Ready = std::pair<Duration, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::vector<Processors> free_at_;  // by step
  std::vector<ChakraStep> steps_;
};

}  // namespace thalweg::sim
