// A timeline of what hosts did, for a viewer: computation, flows and marks; and, from the samples
// of the run, what waited and was lost at each port of a switch and what arrived.
//
// Memory is bounded: beyond a number of spans and marks, and of counts, the rest is left out and
// only counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/network.h"
#include "sim/observe/samples.h"
#include "sim/workload/training.h"
#include "trace/writer.h"

namespace thalweg::sim {

struct TimelineOptions {
  std::size_t most_spans = 500'000;   // spans and marks together
  std::size_t most_counts = 300'000;  // points of all counters
};

class Timeline {
 public:
  // The topology must outlive the timeline.
  explicit Timeline(const topology::Topology& topology, TimelineOptions options = {})
      : topology_(topology), options_(options) {}

  // Adds what flows and spans belong to: a job with the layers of its model, or other traffic.
  // Groups are numbered from 0 on as they are added.
  void add_group(const std::string& name, const std::vector<std::string>& layers);

  void add_compute(std::size_t group, Rank host, const ComputeSpan& span);
  void add_flow(std::size_t group, const FlowSpec& spec, Time start, Time end);
  void add_mark(Time at, std::string what);

  // Writes everything in order of time. Spans are cut at `end`, the end of the run. `delivered`
  // names the columns of samples.delivered. Returns how many spans, marks and counts were left out.
  std::size_t write(const Samples& samples, const std::vector<std::string>& delivered, Time end,
                    trace::EventWriter& out);

  // The names of the ranks' hosts, for the writer.
  [[nodiscard]] std::vector<std::string> host_names() const;

 private:
  struct Group {
    std::string name;
    std::vector<std::string> passes;  // [2 * layer + backward], such as "forward conv1"
  };
  struct Compute {
    Time start;
    Time end;
    Rank host;
    std::uint32_t group = 0;
    std::uint32_t pass = 0;
    trace::Row row = {};
  };
  struct Flow {
    Time start;
    Time end;
    Rank source;
    Rank target;
    std::uint32_t group = 0;
    std::int64_t bytes = 0;
    trace::Row row = {};
  };
  struct Mark {
    Time at;
    std::string what;
  };

  bool has_room();
  void assign_lanes();
  void append_spans(Time end, std::vector<trace::Event>& events) const;

  const topology::Topology& topology_;
  const TimelineOptions options_;
  std::vector<Group> groups_;
  std::vector<Compute> computes_;
  std::vector<Flow> flows_;
  std::vector<Mark> marks_;
  std::size_t left_out_ = 0;
};

}  // namespace thalweg::sim
