// Extents say where in a chunk something has happened: what has come, what was applied, what has
// left. Chunks are counted in units, which are elements on streams and segments in packets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// For what happens in any order, as packets arrive: a set with one bit for each unit. What a call
// costs depends on the length of its run only, and not on how many gaps the set has.
class RunSet {
 public:
  void clear() {
    words_.clear();
    count_ = 0;
  }
  // Requires that no unit of the run is in it.
  void add(Run run);
  [[nodiscard]] std::size_t count() const { return count_; }
  template <class Each>
  void inside(Run run, const Each& each) const {
    each_part(run, true, each);
  }
  // The same for the parts of the run that are not in it.
  template <class Each>
  void outside(Run run, const Each& each) const {
    each_part(run, false, each);
  }

 private:
  static constexpr std::size_t kWordBits = 64;

  template <class Each>
  void each_part(Run run, bool inside, const Each& each) const {
    while (!run.empty()) {
      const std::size_t begin = first(run, inside);
      if (begin == run.end) return;
      const std::size_t end = first({begin, run.end}, !inside);
      each(Run{begin, end});
      run.begin = end;
    }
  }
  // The first unit of the run that is in the set, or that is not in it; run.end: there is none.
  [[nodiscard]] std::size_t first(Run run, bool inside) const;

  std::vector<std::uint64_t> words_;  // units behind the last word are not in it
  std::size_t count_ = 0;
};

}  // namespace thalweg::exec
