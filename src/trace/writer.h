// Writers turn events into text on an output stream, which must outlive them. They build each line
// in a buffer that they reuse, so writing allocates only when a line is the longest so far.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/event.h"

namespace thalweg::trace {

class EventWriter {
 public:
  EventWriter() = default;
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  virtual ~EventWriter() = default;

  virtual void write(const Event& event) = 0;
  // Completes the output. No event may be written after it. Destroying the writer does this too.
  virtual void finish() {}
};

// Writes one line per event, for golden files and people:
//   transfer start_us=0.000000 end_us=12.500000 source=0 target=1 chunk=3 bytes=1024
// Times are exact to the picosecond; strings are quoted and escaped as in JSON.
class TextWriter final : public EventWriter {
 public:
  explicit TextWriter(std::ostream& out) : out_(out) {}
  void write(const Event& event) override;

 private:
  std::ostream& out_;
  std::string line_;
};

// Writes one JSON object per line, with the field `event` first:
//   {"event":"transfer","start_us":0.000000,"end_us":12.500000,"source":0,…}
class JsonLinesWriter final : public EventWriter {
 public:
  explicit JsonLinesWriter(std::ostream& out) : out_(out) {}
  void write(const Event& event) override;

 private:
  std::ostream& out_;
  std::string line_;
};

// Writes the trace format of Chrome (JSON object form), which ui.perfetto.dev opens. Every rank is
// a process, with one track for its own work and marks and one for the transfers to each other
// rank. Further rows have tracks of their own, since spans on one track must not overlap. Events
// that belong to no rank are in the process "network", where each place that drops packets has a
// track.
class ChromeTraceWriter final : public EventWriter {
 public:
  // Ranks that have a name are shown even without events; others are named like "rank 3".
  explicit ChromeTraceWriter(std::ostream& out, std::vector<std::string> rank_names = {});
  ~ChromeTraceWriter() override;
  void write(const Event& event) override;
  void finish() override;
  // Adds a fact about the whole trace. Viewers show it under "otherData".
  void note(std::string_view key, std::int64_t value);
  void note(std::string_view key, std::string_view value);

 private:
  struct Track {
    int process = 0;
    int thread = 0;
  };

  void write_event(const TransferEvent& event);
  void write_event(const ComputeEvent& event);
  void write_event(const OperationEvent& event);
  void write_event(const StepEvent& event);
  void write_event(const LossEvent& event);
  void write_event(const CounterEvent& event);
  void write_event(const MarkEvent& event);
  void write_event(const DropEvent& event);

  // Each of these names the track, or process, on its first use.
  Track work_track(Rank rank, std::string_view job = {}, Row row = {});
  Track operation_track(Rank rank, Row row);
  // A rank's steps to, or from, another.
  Track step_track(Rank rank, Rank peer, bool from, Row row);
  Track transfer_track(Rank source, Rank target, Row row);
  Track place_track(std::string_view place);
  int process_of(Rank rank);
  [[nodiscard]] std::string name_of(Rank rank) const;
  void name_track(Track track, std::string_view name);
  void name_track(Track track, std::string_view name, int sort_index);
  void write_metadata(std::string_view kind, Track track, std::string_view argument,
                      std::string_view value);

  void begin_record(std::string_view phase, std::string_view name, Track track);
  template <class Value>
  void append_member(std::string_view key, const Value& value);
  template <class TypedEvent>
  void append_arguments(const TypedEvent& event);
  void end_record();

  std::ostream& out_;
  const std::vector<std::string> rank_names_;
  std::string record_;
  std::string notes_;  // members of a JSON object
  bool first_ = true;
  bool finished_ = false;
  std::set<std::pair<int, int>> named_tracks_;
  std::map<std::string, int, std::less<>> place_threads_;
};

}  // namespace thalweg::trace
