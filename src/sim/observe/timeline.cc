#include "sim/observe/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sim/observe/sample_counts.h"

namespace thalweg::sim {
namespace {

// How many spans of one place may overlap; more are left out.
constexpr std::size_t kMostRows = 256;

// Gives every span a row: the first row of its place that is free at its start and, where rows have
// owners, belongs to its owner. Removes spans that no row can take. Requires spans in order of
// place and start. Returns how many were removed.
template <class Span, class PlaceOf, class OwnerOf>
std::size_t spread(std::vector<Span>& spans, PlaceOf place_of, OwnerOf owner_of) {
  struct Occupied {
    std::uint32_t owner = 0;
    Time until;
  };
  std::vector<Occupied> rows;
  const Span* before = nullptr;
  for (Span& span : spans) {
    if (before != nullptr && place_of(*before) != place_of(span)) rows.clear();
    before = &span;
    auto row = std::ranges::find_if(rows, [&](const Occupied& l) {
      return l.owner == owner_of(span) && l.until <= span.start;
    });
    if (row == rows.end()) {
      if (rows.size() == kMostRows) {
        span.row = {};
        continue;
      }
      row = rows.insert(rows.end(), {.owner = owner_of(span), .until = {}});
    }
    row->until = span.end;
    span.row = trace::Row(static_cast<std::int32_t>(row - rows.begin()));
  }
  return std::erase_if(spans, [](const Span& span) { return !span.row.valid(); });
}

Time start_of(const trace::Event& event) {
  return std::visit(
      [](const auto& typed) {
        if constexpr (requires { typed.start; }) {
          return typed.start;
        } else {
          return typed.at;
        }
      },
      event);
}

}  // namespace

void Timeline::add_group(const std::string& name, const std::vector<std::string>& layers) {
  groups_.push_back({.name = name, .passes = {}});
  for (const std::string& layer : layers) {
    groups_.back().passes.push_back("forward " + layer);
    groups_.back().passes.push_back("backward " + layer);
  }
}

bool Timeline::has_room() {
  const bool room = computes_.size() + flows_.size() + marks_.size() < options_.most_spans;
  if (!room) ++left_out_;
  return room;
}

void Timeline::add_compute(std::size_t group, Rank host, const ComputeSpan& span) {
  if (!has_room()) return;
  const auto pass = static_cast<std::uint32_t>(2 * span.layer + (span.backward ? 1 : 0));
  CHECK(pass < groups_[group].passes.size(), "layer {} of {}", span.layer, groups_[group].name);
  computes_.push_back({.start = span.start,
                       .end = span.end,
                       .host = host,
                       .group = static_cast<std::uint32_t>(group),
                       .pass = pass});
}

void Timeline::add_flow(std::size_t group, const FlowSpec& spec, Time start, Time end) {
  if (!has_room()) return;
  CHECK(group < groups_.size());
  flows_.push_back({.start = start,
                    .end = end,
                    .source = spec.source,
                    .target = spec.target,
                    .group = static_cast<std::uint32_t>(group),
                    .bytes = static_cast<std::int64_t>(spec.bytes)});
}

void Timeline::add_mark(Time at, std::string what) {
  if (has_room()) marks_.push_back({.at = at, .what = std::move(what)});
}

std::vector<std::string> Timeline::host_names() const {
  std::vector<std::string> names;
  for (Rank rank(0); rank.value() < topology_.host_count(); ++rank) {
    names.push_back(topology_.node(topology_.host(rank)).name);
  }
  return names;
}

void Timeline::assign_lanes() {
  std::ranges::sort(computes_, {}, [](const Compute& c) {
    return std::tuple(c.host, c.start, c.group, c.end, c.pass);
  });
  std::ranges::stable_sort(
      flows_, {}, [](const Flow& f) { return std::tuple(f.source, f.target, f.start, f.end); });
  left_out_ += spread(
      computes_, [](const Compute& c) { return c.host; }, [](const Compute& c) { return c.group; });
  left_out_ += spread(
      flows_, [](const Flow& f) { return std::pair(f.source, f.target); },
      [](const Flow& /*f*/) { return 0U; });
}

void Timeline::append_spans(Time end, std::vector<trace::Event>& events) const {
  for (const Compute& c : computes_) {
    events.emplace_back(trace::ComputeEvent{.start = c.start,
                                            .end = std::min(c.end, end),
                                            .rank = c.host,
                                            .what = groups_[c.group].passes[c.pass],
                                            .job = groups_[c.group].name,
                                            .row = c.row});
  }
  for (const Flow& f : flows_) {
    events.emplace_back(trace::TransferEvent{.start = f.start,
                                             .end = std::min(f.end, end),
                                             .source = f.source,
                                             .target = f.target,
                                             .chunk = {},
                                             .size = Bytes(f.bytes),
                                             .job = groups_[f.group].name,
                                             .row = f.row});
  }
  for (const Mark& m : marks_) {
    if (m.at <= end) events.emplace_back(trace::MarkEvent{.at = m.at, .rank = {}, .what = m.what});
  }
}

std::size_t Timeline::write(const Samples& samples, const std::vector<std::string>& delivered,
                            Time end, trace::EventWriter& out) {
  assign_lanes();
  std::vector<trace::Event> events;
  append_spans(end, events);
  std::deque<std::string> names;
  const std::size_t left_out =
      left_out_ +
      append_sample_counts(samples, delivered, topology_, options_.most_counts, names, events);
  if (left_out > 0) {
    names.push_back(fmt::format("{} events are left out", left_out));
    events.emplace_back(trace::MarkEvent{.at = end, .rank = {}, .what = names.back()});
  }
  std::ranges::stable_sort(events, {}, start_of);
  for (const trace::Event& event : events) out.write(event);
  out.finish();
  return left_out;
}

}  // namespace thalweg::sim
