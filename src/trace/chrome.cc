// Each line is a record: {"ph":phase,"name":…,"pid":…,"tid":…,"ts":…,"args":{…}}. The phase is X
// for a span (with "dur"), C for a counter, i for an instant, and M for the name or sort index of a
// process or thread. Times are in microseconds.
//
// Process 1 is the network, and process 2 + r is rank r. In a rank's process, thread 1 is its own
// work, thread 2 + q its transfers to rank q, kOperationThread its calls, and kFirstStepThread + 2q
// and + 2q + 1 their steps to and from rank q; row l of each has that thread's number
// + l · kRowStride, and is sorted beside it. In the network's process, thread 1 has the marks, and
// each place that drops packets has a thread from 2 on.
#include <fmt/core.h>

#include <iterator>
#include <ostream>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "trace/format.h"
#include "trace/writer.h"

namespace thalweg::trace {
namespace {

constexpr int kNetworkProcess = 1;
constexpr int kFirstRankProcess = 2;
constexpr int kWorkThread = 1;
constexpr int kFirstOtherThread = 2;
// The name and sort index of a process belong to no thread.
constexpr int kNoThread = 0;
constexpr int kRowStride = 1 << 20;
constexpr int kOperationThread = kRowStride - 1;  // beyond any rank
// Above the ranks of any plan.
constexpr int kFirstStepThread = 1 << 18;
constexpr int kMostSteppingRanks = 1 << 18;
constexpr int kMostRows = 1 << 10;

int row_offset(Row row) {
  const int number = row.valid() ? row.value() : 0;
  CHECK(number < kMostRows, "row {}", number);
  return number * kRowStride;
}

}  // namespace

ChromeTraceWriter::ChromeTraceWriter(std::ostream& out, std::vector<std::string> rank_names)
    : out_(out), rank_names_(std::move(rank_names)) {
  out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  for (Rank rank(0); rank.index() < rank_names_.size(); ++rank) process_of(rank);
}

ChromeTraceWriter::~ChromeTraceWriter() { ChromeTraceWriter::finish(); }

void ChromeTraceWriter::finish() {
  if (!finished_) {
    out_ << "\n]";
    if (!notes_.empty()) out_ << ",\"otherData\":{" << notes_ << '}';
    out_ << "}\n";
  }
  finished_ = true;
}

void ChromeTraceWriter::note(std::string_view key, std::int64_t value) {
  fmt::format_to(std::back_inserter(notes_), "{}\"{}\":{}", notes_.empty() ? "" : ",", key, value);
}

void ChromeTraceWriter::note(std::string_view key, std::string_view value) {
  fmt::format_to(std::back_inserter(notes_), "{}\"{}\":", notes_.empty() ? "" : ",", key);
  append_value(notes_, value);
}

void ChromeTraceWriter::write(const Event& event) {
  CHECK(!finished_, "an event after finish()");
  std::visit([&](const auto& typed) { write_event(typed); }, event);
}

void ChromeTraceWriter::write_event(const TransferEvent& event) {
  const Track track = transfer_track(event.source, event.target, event.row);
  begin_record("X",
               event.chunk.valid() ? fmt::format("chunk {}", event.chunk.value())
               : event.job.empty() ? "transfer"
                                   : std::string(event.job),
               track);
  append_member("ts", event.start);
  append_member("dur", event.end - event.start);
  append_arguments(event);
  end_record();
}

void ChromeTraceWriter::write_event(const ComputeEvent& event) {
  begin_record("X", event.what, work_track(event.rank, event.job, event.row));
  append_member("ts", event.start);
  append_member("dur", event.end - event.start);
  append_arguments(event);
  end_record();
}

void ChromeTraceWriter::write_event(const OperationEvent& event) {
  begin_record("X", event.call, operation_track(event.rank, event.row));
  append_member("ts", event.start);
  append_member("dur", event.end - event.start);
  append_arguments(event);
  end_record();
}

void ChromeTraceWriter::write_event(const StepEvent& event) {
  begin_record("X",
               event.chunk.valid() ? fmt::format("{} chunk {}", event.step, event.chunk.value())
                                   : std::string(event.step),
               step_track(event.rank, event.peer, event.step != "send", event.row));
  append_member("ts", event.start);
  append_member("dur", event.end - event.start);
  append_arguments(event);
  end_record();
}

void ChromeTraceWriter::write_event(const LossEvent& event) {
  begin_record("i", event.loss, step_track(event.rank, event.peer, event.loss == "never came", {}));
  append_member("ts", event.at);
  append_member("s", std::string_view("t"));
  append_arguments(event);
  end_record();
}

// The arguments of a counter are its series, so the value stands alone.
void ChromeTraceWriter::write_event(const CounterEvent& event) {
  begin_record("C", event.counter, {.process = process_of(event.rank), .thread = kNoThread});
  append_member("ts", event.at);
  record_ += ",\"args\":{\"value\":";
  append_value(record_, event.value);
  record_ += '}';
  end_record();
}

void ChromeTraceWriter::write_event(const MarkEvent& event) {
  begin_record("i", event.what, work_track(event.rank));
  append_member("ts", event.at);
  append_member("s", std::string_view(event.rank.valid() ? "p" : "g"));
  append_arguments(event);
  end_record();
}

void ChromeTraceWriter::write_event(const DropEvent& event) {
  begin_record("i", event.reason, place_track(event.place));
  append_member("ts", event.at);
  append_member("s", std::string_view("t"));
  append_arguments(event);
  end_record();
}

ChromeTraceWriter::Track ChromeTraceWriter::work_track(Rank rank, std::string_view job, Row row) {
  const Track track{.process = process_of(rank), .thread = kWorkThread + row_offset(row)};
  const std::string of_job = job.empty() ? "" : fmt::format(" ({})", job);
  name_track(track, rank.valid() ? "compute" + of_job : "marks", kWorkThread);
  return track;
}

ChromeTraceWriter::Track ChromeTraceWriter::operation_track(Rank rank, Row row) {
  const Track track{.process = process_of(rank), .thread = kOperationThread + row_offset(row)};
  name_track(track, "calls", kOperationThread);
  return track;
}

ChromeTraceWriter::Track ChromeTraceWriter::step_track(Rank rank, Rank peer, bool from, Row row) {
  CHECK(peer.valid() && peer.value() < kMostSteppingRanks, "a step with rank {}", peer.value());
  const int thread = kFirstStepThread + 2 * peer.value() + (from ? 1 : 0);
  const Track track{.process = process_of(rank), .thread = thread + row_offset(row)};
  // After the calls, which they are steps of.
  name_track(track, fmt::format("{} {}", from ? "from" : "to", name_of(peer)), kRowStride + thread);
  return track;
}

ChromeTraceWriter::Track ChromeTraceWriter::transfer_track(Rank source, Rank target, Row row) {
  CHECK(source.valid() && target.valid(), "a transfer from {} to {}", source.value(),
        target.value());
  const int thread = kFirstOtherThread + target.value();
  const Track track{.process = process_of(source), .thread = thread + row_offset(row)};
  const bool further = row.valid() && row.value() > 0;
  name_track(
      track,
      fmt::format("to {}{}", name_of(target), further ? fmt::format(" ({})", row.value() + 1) : ""),
      thread);
  return track;
}

ChromeTraceWriter::Track ChromeTraceWriter::place_track(std::string_view place) {
  auto found = place_threads_.find(place);
  if (found == place_threads_.end()) {
    const int thread = kFirstOtherThread + static_cast<int>(place_threads_.size());
    found = place_threads_.emplace(place, thread).first;
  }
  const Track track{.process = process_of({}), .thread = found->second};
  name_track(track, place);
  return track;
}

int ChromeTraceWriter::process_of(Rank rank) {
  const int process = rank.valid() ? kFirstRankProcess + rank.value() : kNetworkProcess;
  name_track({.process = process, .thread = kNoThread}, rank.valid() ? name_of(rank) : "network");
  return process;
}

std::string ChromeTraceWriter::name_of(Rank rank) const {
  return rank.index() < rank_names_.size() ? rank_names_[rank.index()]
                                           : fmt::format("rank {}", rank.value());
}

void ChromeTraceWriter::name_track(Track track, std::string_view name) {
  name_track(track, name, track.thread == kNoThread ? track.process : track.thread);
}

void ChromeTraceWriter::name_track(Track track, std::string_view name, int sort_index) {
  if (!named_tracks_.insert({track.process, track.thread}).second) return;
  const bool is_process = track.thread == kNoThread;
  std::string quoted;
  append_value(quoted, name);
  write_metadata(is_process ? "process_name" : "thread_name", track, "name", quoted);
  write_metadata(is_process ? "process_sort_index" : "thread_sort_index", track, "sort_index",
                 fmt::format("{}", sort_index));
}

void ChromeTraceWriter::write_metadata(std::string_view kind, Track track,
                                       std::string_view argument, std::string_view value) {
  begin_record("M", kind, track);
  fmt::format_to(std::back_inserter(record_), ",\"args\":{{\"{}\":{}}}", argument, value);
  end_record();
}

void ChromeTraceWriter::begin_record(std::string_view phase, std::string_view name, Track track) {
  record_ = first_ ? "\n" : ",\n";
  first_ = false;
  fmt::format_to(std::back_inserter(record_), "{{\"ph\":\"{}\",\"name\":", phase);
  append_value(record_, name);
  fmt::format_to(std::back_inserter(record_), ",\"pid\":{},\"tid\":{}", track.process,
                 track.thread);
}

template <class Value>
void ChromeTraceWriter::append_member(std::string_view key, const Value& value) {
  record_ += ",\"";
  record_ += key;
  record_ += "\":";
  append_value(record_, value);
}

template <class TypedEvent>
void ChromeTraceWriter::append_arguments(const TypedEvent& event) {
  record_ += ",\"args\":";
  char separator = '{';
  event.for_each_field([&](std::string_view key, const auto& value) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, Time>) {
      if (!is_present(value)) return;
      record_ += separator;
      separator = ',';
      record_ += '"';
      record_ += key;
      record_ += "\":";
      append_value(record_, value);
    }
  });
  record_ += separator == '{' ? "{}" : "}";
}

void ChromeTraceWriter::end_record() {
  record_ += '}';
  out_ << record_;
}

}  // namespace thalweg::trace
