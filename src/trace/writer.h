// Writers turn events into text on a stream that outlives them. A line is built in a buffer that is
// reused, so writing does not allocate once the longest line has been seen.
#pragma once

#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/event.h"

namespace thalweg {

class EventWriter {
 public:
  EventWriter() = default;
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  virtual ~EventWriter() = default;

  virtual void write(const Event& event) = 0;
  // Completes the output. Nothing may be written after it; destruction implies it.
  virtual void finish() {}
};

// One line an event, for goldens and people:
//   transfer start_us=0.000000 end_us=12.500000 source=0 target=1 chunk=3 bytes=1024
// Times have picosecond digits, strings are quoted and escaped as in JSON.
class TextWriter final : public EventWriter {
 public:
  explicit TextWriter(std::ostream& out) : out_(out) {}
  void write(const Event& event) override;

 private:
  std::ostream& out_;
  std::string line_;
};

// One JSON object a line, `event` first:
//   {"event":"transfer","start_us":0.000000,"end_us":12.500000,"source":0,…}
class JsonLinesWriter final : public EventWriter {
 public:
  explicit JsonLinesWriter(std::ostream& out) : out_(out) {}
  void write(const Event& event) override;

 private:
  std::ostream& out_;
  std::string line_;
};

// The trace format of Chrome (JSON object form), which ui.perfetto.dev opens. Every rank is a
// process, with a track for its own work and marks and one for the transfers to each other rank,
// and further ones for their lanes: spans on one track must not overlap. What belongs to no rank is
// in the process "network", drops with one track a place.
class ChromeTraceWriter final : public EventWriter {
 public:
  // Ranks with a name are there even if nothing happens to them; others are called "rank 3".
  explicit ChromeTraceWriter(std::ostream& out, std::vector<std::string> rank_names = {});
  ~ChromeTraceWriter() override;
  void write(const Event& event) override;
  void finish() override;

 private:
  struct Track {
    int process = 0;
    int thread = 0;
  };

  void write_event(const TransferEvent& event);
  void write_event(const ComputeEvent& event);
  void write_event(const CounterEvent& event);
  void write_event(const MarkEvent& event);
  void write_event(const DropEvent& event);

  // Each names the track on its first use.
  Track work_track(Rank rank, std::string_view job = {}, Lane lane = {});
  Track transfer_track(Rank source, Rank target, Lane lane);
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
  bool first_ = true;
  bool finished_ = false;
  std::set<std::pair<int, int>> named_tracks_;
  std::map<std::string, int, std::less<>> place_threads_;
};

}  // namespace thalweg
