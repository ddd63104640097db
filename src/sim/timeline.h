// What hosts did when, for a timeline viewer: computation, flows and marks; and, from the samples
// of the run, what waited and was lost at each port of a switch and what arrived.
//
// Memory is bounded: beyond a number of spans and marks, and of counts, the rest is left out, and
// how many that are is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/network.h"
#include "sim/samples.h"
#include "sim/training.h"
#include "trace/writer.h"

namespace thalweg {

struct TimelineOptions {
  std::size_t most_spans = 500'000;   // and marks, together
  std::size_t most_counts = 300'000;  // points of all counters
};

class Timeline {
 public:
  // The topology must outlive the timeline.
  explicit Timeline(const Topology& topology, TimelineOptions options = {})
      : topology_(topology), options_(options) {}

  // What flows and spans belong to, numbered as they come: jobs with the layers of their models,
  // and other traffic.
  void add_group(const std::string& name, const std::vector<std::string>& layers);

  void add_compute(std::size_t group, Rank host, const ComputeSpan& span);
  void add_flow(std::size_t group, const FlowSpec& spec, Time start, Time end);
  void add_mark(Time at, std::string what);

  // Everything, in order of time. Spans are cut at `end`, the end of the run. `delivered`: names of
  // the columns of samples.delivered. Returns how many spans, marks and counts were left out.
  std::size_t write(const Samples& samples, const std::vector<std::string>& delivered, Time end,
                    EventWriter& out);

  // Names of the ranks, for the writer.
  [[nodiscard]] std::vector<std::string> host_names() const;

 private:
  struct Group {
    std::string name;
    std::vector<std::string> passes;  // [2 * layer + backward]: "forward conv1"
  };
  struct Compute {
    Time start;
    Time end;
    Rank host;
    std::uint32_t group = 0;
    std::uint32_t pass = 0;
    Lane lane = {};
  };
  struct Flow {
    Time start;
    Time end;
    Rank source;
    Rank target;
    std::uint32_t group = 0;
    std::int64_t bytes = 0;
    Lane lane = {};
  };
  struct Mark {
    Time at;
    std::string what;
  };

  bool has_room();
  void assign_lanes();
  void append_spans(Time end, std::vector<Event>& events) const;

  const Topology& topology_;
  const TimelineOptions options_;
  std::vector<Group> groups_;
  std::vector<Compute> computes_;
  std::vector<Flow> flows_;
  std::vector<Mark> marks_;
  std::size_t left_out_ = 0;
};

}  // namespace thalweg
