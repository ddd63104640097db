// Extents say where in a chunk something has happened: what has come, what was applied, what has
// left. Chunks are counted in units, which are elements on streams and segments in packets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace thalweg::exec {

// The units [begin, end) of a chunk.
struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin == end; }
  bool operator==(const Run&) const = default;
};

// For what happens in order, as bytes arrive on a stream: a prefix of the chunk.
class Prefix {
 public:
  void clear() { end_ = 0; }
  // Requires that the run begins where the prefix ends.
  void add(Run run) { end_ = run.end; }
  // How many units are in it.
  [[nodiscard]] std::size_t count() const { return end_; }
  // Calls each(part) for every part of the run that is in it, in order.
  template <class Each>
  void inside(Run run, const Each& each) const {
    const std::size_t end = std::min(run.end, end_);
    if (run.begin < end) each(Run{run.begin, end});
  }
  // The same for the part of the run that is not in it.
  template <class Each>
  void outside(Run run, const Each& each) const {
    const std::size_t begin = std::max(run.begin, end_);
    if (begin < run.end) each(Run{begin, run.end});
  }

 private:
  std::size_t end_ = 0;
};

// For what happens in any order, as packets arrive: a set of runs, of which there are few, because
// most packets arrive in order.
class RunSet {
 public:
  void clear() {
    runs_.clear();
    count_ = 0;
  }
  // Requires that no unit of the run is in it.
  void add(Run run);
  [[nodiscard]] std::size_t count() const { return count_; }
  template <class Each>
  void inside(Run run, const Each& each) const {
    if (run.empty()) return;
    for (std::size_t i = first_behind(run.begin); i < runs_.size() && runs_[i].begin < run.end;
         ++i) {
      each(Run{std::max(run.begin, runs_[i].begin), std::min(run.end, runs_[i].end)});
    }
  }
  // The same for the parts of the run that are not in it.
  template <class Each>
  void outside(Run run, const Each& each) const {
    std::size_t next = run.begin;
    inside(run, [&](Run part) {
      if (next < part.begin) each(Run{next, part.begin});
      next = part.end;
    });
    if (next < run.end) each(Run{next, run.end});
  }

 private:
  // The index of the first run that ends behind the unit.
  [[nodiscard]] std::size_t first_behind(std::size_t unit) const;

  std::vector<Run> runs_;  // ascending, with gaps between them
  std::size_t count_ = 0;
};

}  // namespace thalweg::exec
