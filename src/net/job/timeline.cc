#include "net/job/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// More calls at once than rows: the rest shares the last one.
constexpr int kLastRow = 1000;

std::int64_t clock_us(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

// What the kernel calls this boot of this machine: processes that have it in common share a clock.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

// The Timeline of this process.
struct MadeTimeline {
  std::mutex mutex;
  std::weak_ptr<Timeline> timeline;
};

MadeTimeline& made() {
  static MadeTimeline one;
  return one;
}

// The first row whose last call was over when this one was made.
int row_for(std::vector<Time>& free_at, Time from, Time until) {
  const auto found = std::ranges::find_if(free_at, [&](Time at) { return at <= from; });
  const auto row = found - free_at.begin();
  if (row >= kLastRow) return kLastRow;
  if (found == free_at.end()) {
    free_at.push_back(until);
  } else {
    *found = until;
  }
  return static_cast<int>(row);
}

}  // namespace

Result<std::string> timeline_path(const std::string& setting, int rank) {
  const std::string number = std::to_string(rank);
  std::string path;
  bool named = false;
  for (std::size_t at = 0; at < setting.size(); ++at) {
    if (setting[at] != '%') {
      path += setting[at];
      continue;
    }
    if (++at == setting.size() || setting[at] != 'r') {
      return Error(fmt::format(
          "THALWEG_TIMELINE: '{}' is not allowed: of the words with %, only %r, the rank, is known",
          setting));
    }
    path += number;
    named = true;
  }
  if (named) return path;
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  const bool has_extension = dot != std::string::npos && dot > name;
  path.insert(has_extension ? dot : path.size(), "." + number);
  return path;
}

std::shared_ptr<Timeline> Timeline::existing() {
  const std::lock_guard lock(made().mutex);
  std::shared_ptr<Timeline> there = made().timeline.lock();
  return there && there->home_.here() ? there : nullptr;
}

Result<std::shared_ptr<Timeline>> Timeline::of_process(const std::string& setting, int rank,
                                                       int size) {
  const std::lock_guard lock(made().mutex);
  // That of a parent process notes the parent's calls.
  std::shared_ptr<Timeline> there = made().timeline.lock();
  if (there && there->home_.here()) return there;
  THALWEG_TRY(std::string path, timeline_path(setting, rank));
  // Whoever cannot write it learns so before the job has run for hours.
  if (!std::ofstream(path, std::ios::trunc).good()) {
    return system_error(fmt::format("THALWEG_TIMELINE: cannot write {}", path), errno);
  }
  std::shared_ptr<Timeline> timeline(new Timeline(std::move(path), rank, size));
  made().timeline = timeline;
  return timeline;
}

Timeline::~Timeline() {
  if (home_.here()) write();
}

void Timeline::add_group(std::string_view group, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  groups_.insert_or_assign(std::string(group), ranks);
}

void Timeline::watch(Operation::State& op, const Call& call) {
  Span span;
  span.called = monotonic_now();
  span.size = call.size;
  span.number = call.number;
  {
    const std::lock_guard lock(mutex_);
    span.name = word(call.name);
    span.group = word(call.group);
    span.scheme = word(call.scheme);
    span.transport = word(call.transport);
    const bool is_collective = call.number >= 0;
    if (is_collective && noted_steps_ < kMostSteps) {
      op.notes = std::make_shared<StepNotes>();
    } else if (is_collective) {
      ++calls_without_steps_;
    }
  }
  op.on_over = [self = shared_from_this(), raw = &op, span, then = std::move(op.on_over)] {
    Span over = span;
    over.ended = monotonic_now();
    over.started = raw->has_times ? std::max(raw->started, span.called) : span.called;
    over.failed = !raw->result->ok();
    self->note(over, *raw);
    if (then) then();
  };
}

void Timeline::end_iteration() {
  const Time now = monotonic_now();
  const std::lock_guard lock(mutex_);
  if (iterations_.size() < kMostCalls) iterations_.push_back(now);
}

std::string_view Timeline::word(std::string_view text) {
  const auto found = words_.find(text);
  return found != words_.end() ? *found : *words_.emplace(text).first;
}

void Timeline::note(const Span& span, const Operation::State& op) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < kMostCalls) {
    spans_.push_back(span);
  } else {
    ++left_out_;
  }
  bool whole = true;
  for (const auto& notes : op.all_notes()) whole = note_steps(span, notes) && whole;
  if (!whole) ++calls_without_steps_;
  if (span.failed && !std::exchange(has_failed_, true)) write();
}

bool Timeline::note_steps(const Span& span, std::shared_ptr<const StepNotes> notes) {
  const std::size_t count = notes->steps().size() + notes->losses().size() + notes->stalls().size();
  if (noted_steps_ + count > kMostSteps) return false;
  noted_steps_ += count;
  const bool whole = notes->left_out() == 0;
  if (count > 0) steps_.push_back({std::move(notes), span.group, span.number});
  return whole;
}

void Timeline::write() {
  std::ofstream out(path_, std::ios::trunc);
  trace::ChromeTraceWriter writer(out);
  writer.note("rank", rank_);
  writer.note("size", size_);
  writer.note("host", host_name());
  writer.note("boot", boot_id());
  // Microseconds on both clocks at time 0 of this file.
  const std::int64_t now = monotonic_now().since_start().ps() / 1'000'000;
  writer.note("monotonic_us", clock_us(CLOCK_MONOTONIC) - now);
  writer.note("realtime_us", clock_us(CLOCK_REALTIME) - now);
  writer.note("left_out", static_cast<std::int64_t>(left_out_));
  writer.note("calls_without_steps", static_cast<std::int64_t>(calls_without_steps_));
  write_spans(writer);
  write_iterations(writer);
  write_steps(writer);
  write_losses(writer);
  writer.finish();
}

void Timeline::write_spans(trace::ChromeTraceWriter& writer) {
  std::ranges::stable_sort(spans_, {}, [](const Span& span) { return span.called; });
  std::vector<Time> free_at;
  for (const Span& span : spans_) {
    writer.write(trace::OperationEvent{
        .start = span.called,
        .end = span.ended,
        .rank = Rank(rank_),
        .call = span.name,
        .size = span.size,
        .scheme = span.scheme,
        .transport = span.transport,
        .group = span.group,
        .number = span.number >= 0 ? trace::CallNumber(span.number) : trace::CallNumber(),
        .queued = span.started - span.called,
        .outcome = span.failed ? std::string_view("failed") : std::string_view("ok"),
        .row = trace::Row(row_for(free_at, span.called, span.ended))});
  }
}

void Timeline::write_iterations(trace::ChromeTraceWriter& writer) const {
  for (const Time at : iterations_) {
    writer.write(trace::MarkEvent{.at = at, .rank = Rank(rank_), .what = "iteration"});
  }
}

Rank Timeline::world_rank(std::string_view group, Rank rank) const {
  const auto found = groups_.find(group);
  if (found == groups_.end() || rank.index() >= found->second.size()) return rank;
  return Rank(found->second[rank.index()]);
}

void Timeline::write_steps(trace::ChromeTraceWriter& writer) const {
  std::vector<trace::StepEvent> events;
  for (const Steps& of : steps_) {
    const auto add = [&](Time start, Time end, Rank peer, std::string_view step) {
      events.push_back({.start = start,
                        .end = end,
                        .rank = Rank(rank_),
                        .peer = world_rank(of.group, peer),
                        .step = step,
                        .group = of.group,
                        .number = trace::CallNumber(of.number)});
    };
    for (const StepNotes::Step& step : of.notes->steps()) {
      add(step.start, step.end, step.peer, step.sends ? "send" : "receive");
      events.back().chunk = step.chunk;
      events.back().size = Bytes(static_cast<std::int64_t>(step.bytes));
    }
    for (const StepNotes::Stall& stall : of.notes->stalls()) {
      add(stall.start, stall.end, stall.peer, "stall");
    }
  }
  std::ranges::stable_sort(events, {}, [](const auto& event) { return event.start; });
  std::map<std::pair<Rank, bool>, std::vector<Time>> free_at;  // by peer, and whether it sends
  for (trace::StepEvent& event : events) {
    event.row =
        trace::Row(row_for(free_at[{event.peer, event.step == "send"}], event.start, event.end));
    writer.write(event);
  }
}

void Timeline::write_losses(trace::ChromeTraceWriter& writer) const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const Steps& of : steps_) {
    for (const StepNotes::Loss& loss : of.notes->losses()) {
      writer.write(trace::LossEvent{
          .at = loss.at,
          .rank = Rank(rank_),
          .peer = world_rank(of.group, loss.peer),
          .loss = loss.again ? std::string_view("sent again") : std::string_view("never came"),
          .count = trace::Count(static_cast<std::int32_t>(std::min(loss.count, kMost))),
          .group = of.group,
          .number = trace::CallNumber(of.number)});
    }
  }
}

}  // namespace thalweg::net
