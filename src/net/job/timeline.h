// The calls of this process's communicators on a time axis (THALWEG_TIMELINE, docs/operating.md):
// which call, when it was made, started and over, how many bytes, by which scheme and transport;
// when the program ended an iteration; and within a call, when each transfer of its plan moved,
// what was lost and what waited (net/group/operation/step_notes.h). It is written in Chrome's trace
// format, which ui.perfetto.dev opens.
//
// Calls are noted in memory. The file is written when the first call fails, because others may end
// this process then, and when the last communicator is gone. A process has at most one Timeline,
// shared by its communicators.
//
// Invariant: at most kMostCalls calls, as many iterations, and kMostSteps steps and losses are
// noted; the file says how many more calls and steps there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/group/operation/operation.h"
#include "net/io/home_process.h"
#include "trace/writer.h"

namespace thalweg::net {

// The path of a rank's file: %r is its rank. Without %r the rank is put before the last extension.
[[nodiscard]] Result<std::string> timeline_path(const std::string& setting, int rank);

class Timeline : public std::enable_shared_from_this<Timeline> {
 public:
  static constexpr std::size_t kMostCalls = 1 << 17;
  static constexpr std::size_t kMostSteps = 1 << 17;

  // The Timeline of this process; the first call makes it, and its file. `setting`: the value of
  // THALWEG_TIMELINE.
  static Result<std::shared_ptr<Timeline>> of_process(const std::string& setting, int rank,
                                                      int size);
  // That Timeline, or null if none has been made.
  static std::shared_ptr<Timeline> existing();
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  struct Call {
    std::string_view name;
    std::string_view group;
    std::string_view scheme = {};  // empty: none
    std::string_view transport;    // "tcp", "dlcp" or "atp"
    Bytes size = {};
    int number = -1;  // its place among the collectives of the group; below 0: a message
  };
  // Says which ranks of the job a communicator has. Steps name the job's ranks; those of a
  // communicator that is not known, its own.
  void add_group(std::string_view group, const std::vector<int>& ranks);
  // Notes the call when it is over. Requires that it has not started.
  void watch(Operation::State& op, const Call& call);
  // Notes that the program has used what its calls brought: an optimizer has done its step.
  void end_iteration();

 private:
  struct Span {
    Time called;
    Time started;
    Time ended;
    // Words of words_.
    std::string_view name;
    std::string_view group;
    std::string_view scheme;
    std::string_view transport;
    Bytes size;
    int number = -1;
    bool failed = false;
  };
  struct Steps {
    std::shared_ptr<const StepNotes> notes;
    std::string_view group;  // a word of words_
    int number = -1;
  };
  Timeline(std::string path, int rank, int size)
      : path_(std::move(path)), rank_(rank), size_(size) {}
  // Requires mutex_. The view lives as long as the Timeline.
  std::string_view word(std::string_view text);
  void note(const Span& span, const Operation::State& op);
  // False: some steps are left out.
  bool note_steps(const Span& span, std::shared_ptr<const StepNotes> notes);
  // Requires mutex_, or that nobody else uses the Timeline.
  void write();
  void write_spans(trace::ChromeTraceWriter& writer);
  void write_iterations(trace::ChromeTraceWriter& writer) const;
  void write_steps(trace::ChromeTraceWriter& writer) const;
  void write_losses(trace::ChromeTraceWriter& writer) const;
  // The job's rank of a communicator's.
  [[nodiscard]] Rank world_rank(std::string_view group, Rank rank) const;

  HomeProcess home_;
  std::string path_;
  int rank_;
  int size_;
  // Guards what follows. It is taken while an engine's locks are held.
  std::mutex mutex_;
  std::set<std::string, std::less<>> words_;
  std::map<std::string, std::vector<int>, std::less<>> groups_;
  std::deque<Span> spans_;
  std::deque<Time> iterations_;
  std::deque<Steps> steps_;
  std::size_t noted_steps_ = 0;  // and losses, in steps_
  std::size_t left_out_ = 0;
  std::size_t calls_without_steps_ = 0;  // calls of which some, or all, steps are left out
  bool has_failed_ = false;
};

}  // namespace thalweg::net
