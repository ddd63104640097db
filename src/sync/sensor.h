// Finds where the network is slow, from nothing but the times of the groups' own exchanges.
//
// Every worker notes its times. After a window of iterations all workers exchange their notes
// (SenseReport), and each gives all of them to its own Sensor. The same input gives the same
// decision, so all workers make the same next schedule at the same iteration (check_words() proves
// it).
//
// How it decides. A time is converted to that of the tensor once over a link, by what a ring of the
// group's size moves. It is slow if it is far above the best usual time so far, separately for
// groups within a region and across regions. A slowdown of both kinds alike (workers that compute
// longer) is not caused by a link and does not count. A worker takes part in its groups' exchanges,
// a region in those that cross its boundary. A worker or region whose exchanges were almost all
// slow is suspected; the one that explains most slow exchanges comes first. Exchanges that it
// explains do not count against others, except against those that cannot be told from it, which
// later, smaller groups acquit.
//
// Hysteresis: a suspicion takes effect after `windows` windows in a row, and so does an acquittal;
// an acquittal requires fewer slow exchanges than a suspicion does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sync/schedule.h"

namespace thalweg::sync {

struct SensingOptions {
  double slow_above = 1.6;     // an exchange is slow above this many times the usual time
  double suspect_part = 0.75;  // suspected from this share of slow exchanges on
  double acquit_part = 0.6;    // acquitted below this share of slow exchanges
  int windows = 2;             // how many windows in a row a change takes
};

// One worker's report of a window.
struct SenseReport {
  std::int64_t from_iteration = 0;
  // [iteration − from_iteration]: how long its exchange took, in seconds; 0 if the worker was alone
  // or did not note it.
  std::vector<double> seconds;
};

// One group's exchange in one iteration.
struct GroupTime {
  Group members;
  double seconds = 0;
};

// reports[r] is rank r's. A group's time is the shortest that a member saw, because the others
// waited for the last member to begin. A group's exchange that no member noted is left out. An
// error names the rank whose report is for another window.
Result<std::vector<GroupTime>> merge_reports(std::span<const SenseReport> reports,
                                             const Schedule& schedule);

class Sensor {
 public:
  // The tree must outlive the sensor.
  explicit Sensor(const WorkerTree& tree, const SensingOptions& options = {});

  // Takes all exchanges of one window. Returns true if the bottlenecks changed.
  bool review(std::span<const GroupTime> exchanges);
  [[nodiscard]] const Bottlenecks& bottlenecks() const { return bottlenecks_; }

 private:
  // A worker's NIC, or the link that leaves a region.
  struct Suspect {
    int exchanges = 0;    // in this window
    int slow = 0;         // how many of them were slow
    int unexplained = 0;  // how many of the slow ones no implicated suspect explains
    bool implicated = false;
    bool guilty = false;
    int streak = 0;  // windows in a row that contradict `guilty`
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
  // The best usual time of the tensor once over a link, in seconds: within a region, across
  // regions.
  double usual_[2] = {0, 0};
  std::vector<std::vector<std::size_t>> slow_exchanges_;  // in this window; the suspects of each
  Bottlenecks bottlenecks_;
};

}  // namespace thalweg::sync
