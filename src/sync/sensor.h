// Where the network is slow, from nothing but how long the groups' own exchanges took.
//
// Every worker notes its times. After a window of iterations all workers exchange their notes
// (SenseReport), and each gives all of them to its own Sensor: same input, same decision, so that
// all make the same next schedule at the same iteration (check_words() proves it).
//
// How it decides. A time is taken as that of the tensor once over a link, by what a ring of the
// group's size moves. It is slow if it is far above the best that was ever usual, separately for
// groups within a region and across regions. What slows both kinds alike (workers that compute
// longer) is no link's fault and does not count. A worker takes part in its groups' exchanges, a
// region in those that cross its boundary: whoever was in slow exchanges almost always is
// suspected, the one that explains most first; what it explains implicates nobody else, except
// those that cannot be told from it, which later, smaller groups acquit.
//
// Hysteresis: a suspicion counts after `windows` windows in a row, an acquittal too, and acquittal
// asks for fewer slow exchanges than suspicion does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sync/schedule.h"

namespace thalweg {

struct SensingOptions {
  double slow_above = 1.6;     // times the usual: slow
  double suspect_part = 0.75;  // of the exchanges slow: suspected
  double acquit_part = 0.6;    // fewer than this part slow: acquitted
  int windows = 2;             // in a row
};

// What a worker says of a window.
struct SenseReport {
  std::int64_t from_iteration = 0;
  // [iteration − from_iteration]: how long its exchange took, in seconds; 0 where it was alone or
  // has not noted it.
  std::vector<double> seconds;
};

// One group's exchange in one iteration.
struct GroupTime {
  Group members;
  double seconds = 0;
};

// reports[r] is rank r's. A group's time is the shortest that a member saw: the others waited for
// the last to begin. A group's exchange that no member has noted is left out. Errors name the rank
// whose report is of another window.
Result<std::vector<GroupTime>> merge_reports(std::span<const SenseReport> reports,
                                             const Schedule& schedule);

class Sensor {
 public:
  // The tree must outlive the sensor.
  explicit Sensor(const WorkerTree& tree, const SensingOptions& options = {});

  // Told all exchanges of one window. True if the bottlenecks changed.
  bool review(std::span<const GroupTime> exchanges);
  [[nodiscard]] const Bottlenecks& bottlenecks() const { return bottlenecks_; }

 private:
  // A worker's NIC, or the link that leaves a region.
  struct Suspect {
    int exchanges = 0;    // in this window
    int slow = 0;         // of them
    int unexplained = 0;  // of these
    bool implicated = false;
    bool guilty = false;
    int streak = 0;  // windows in a row that speak against what `guilty` says
    [[nodiscard]] double part() const {
      return exchanges == 0 ? 0 : static_cast<double>(slow) / exchanges;
    }
  };

  [[nodiscard]] std::vector<std::size_t> suspects_of(const Group& group) const;
  void mark_slow(std::span<const GroupTime> exchanges);
  void implicate();
  bool judge();

  const WorkerTree& tree_;
  const SensingOptions options_;
  std::vector<Suspect> suspects_;  // workers, then regions
  // What a byte's way takes when nothing disturbs it: within a region, across.
  double usual_[2] = {0, 0};
  std::vector<std::vector<std::size_t>> slow_exchanges_;  // the suspects of each in this window
  Bottlenecks bottlenecks_;
};

}  // namespace thalweg
