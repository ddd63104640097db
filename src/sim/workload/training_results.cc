// What a TrainingJob says of its iterations.
#include <algorithm>

#include "base/check.h"
#include "sim/workload/training.h"

namespace thalweg::sim {

std::size_t TrainingJob::iterations_done() const {
  std::size_t least = iteration_count();
  for (const Worker& worker : workers_) least = std::min(least, worker.ends.size());
  return least;
}

std::vector<IterationResult> TrainingJob::results() const {
  std::vector<IterationResult> all;
  const std::size_t count = iterations_done();
  for (std::size_t i = 0; i < count; ++i) {
    IterationResult result{workers_.front().starts[i], workers_.front().ends[i]};
    for (const Worker& worker : workers_) {
      result.start = std::min(result.start, worker.starts[i]);
      result.end = std::max(result.end, worker.ends[i]);
    }
    all.push_back(result);
  }
  return all;
}

double TrainingJob::iterations_per_second() const {
  CHECK(done());
  const std::vector<IterationResult> all = results();
  const std::size_t first = all.size() > 1 ? 1 : 0;
  const Time begin = first == 0 ? all[0].start : all[first - 1].end;
  const Duration time = all.back().end - begin;
  return static_cast<double>(all.size() - first) / time.s();
}

std::vector<Duration> TrainingJob::worker_paces() const {
  CHECK(done());
  const Time start = results().front().start;
  std::vector<Duration> paces;
  for (const Worker& worker : workers_) {
    paces.push_back((worker.ends.back() - start) / options_.iterations);
  }
  return paces;
}

double TrainingJob::samples_per_second() const {
  return static_cast<double>(model_.batch) * model_.part * static_cast<double>(workers_.size()) *
         iterations_per_second();
}

double TrainingJob::goodput_gbps() const {
  return static_cast<double>(model_.size().count()) * 8e-9 * iterations_per_second();
}

}  // namespace thalweg::sim
