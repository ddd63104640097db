// thalweg._sync: DS-Sync's schedules and its sensor (src/sync) for Python. It knows nothing of
// PyTorch. Bad input raises a ValueError.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sync/mixing.h"
#include "sync/sensor.h"

namespace py = pybind11;

namespace thalweg::python {
namespace {

using Lists = std::vector<std::vector<int>>;

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw py::value_error(result.error().message());
  return *std::move(result);
}

std::vector<Rank> ranks_of(const std::vector<int>& numbers) {
  std::vector<Rank> ranks;
  for (const int number : numbers) ranks.emplace_back(number);
  return ranks;
}

sync::WorkerTree tree_of(const Lists& racks) {
  std::vector<std::vector<Rank>> groups;
  for (const std::vector<int>& rack : racks) groups.push_back(ranks_of(rack));
  return value_of(sync::WorkerTree::from_racks(groups));
}

// A rack's number in Python is its place in the list. Region 0 is the root; with one rack it is the
// only region.
int region_of_rack(int rack) { return rack + 1; }

// The numbers by which check_words() compares the schedules of ranks.
using Word = std::array<std::int64_t, 4>;

// The schedule of one job, and the sensor that decides on the next schedule.
class Groups {
 public:
  Groups(const Lists& racks, std::uint64_t seed)
      : tree_(tree_of(racks)), sensor_(tree_), schedule_(sync::init_groups(tree_, seed)) {}

  [[nodiscard]] std::vector<Lists> period() const {
    std::vector<Lists> period;
    for (const sync::Grouping& groups : schedule_.period) {
      period.emplace_back();
      for (const sync::Group& group : groups) {
        period.back().emplace_back();
        for (const Rank worker : group) period.back().back().push_back(worker.value());
      }
    }
    return period;
  }

  void adjust(const std::vector<int>& slow_racks, const std::vector<int>& slow_workers) {
    sync::Bottlenecks slow{.regions = {}, .workers = ranks_of(slow_workers)};
    for (const int rack : slow_racks) slow.regions.push_back(region_of_rack(rack));
    std::ranges::sort(slow.regions);
    std::ranges::sort(slow.workers);
    schedule_ = value_of(sync::adjust_groups(tree_, slow, schedule_.seed));
  }

  // `seconds` is [rank][iteration]. Returns the arguments for adjust(), or None if nothing changed.
  py::object review(std::int64_t from_iteration, const std::vector<std::vector<double>>& seconds) {
    std::vector<sync::SenseReport> reports;
    for (const auto& of_rank : seconds) reports.push_back({from_iteration, of_rank});
    const auto exchanges = value_of(sync::merge_reports(reports, schedule_));
    if (!sensor_.review(exchanges)) return py::none();
    std::vector<int> racks;
    std::vector<int> workers;
    for (const int region : sensor_.bottlenecks().regions)
      racks.push_back(region - region_of_rack(0));
    for (const Rank worker : sensor_.bottlenecks().workers) workers.push_back(worker.value());
    return py::make_tuple(racks, workers);
  }

  [[nodiscard]] std::vector<int> group_of(std::int64_t iteration, int worker) const {
    if (iteration < 0 || worker < 0 || worker >= schedule_.workers) {
      throw py::value_error("iteration " + std::to_string(iteration) + ", worker " +
                            std::to_string(worker) + "; from 0, and from 0 to " +
                            std::to_string(schedule_.workers - 1) + ", are allowed");
    }
    std::vector<int> members;
    for (const Rank one : schedule_.group_of(iteration, Rank(worker))) {
      members.push_back(one.value());
    }
    return members;
  }

  // Returns this rank's argument for check_words(): numbers that fit into a tensor of int64.
  [[nodiscard]] Word word(std::int64_t from_iteration) const {
    return {schedule_.workers, static_cast<std::int64_t>(schedule_.seed),
            static_cast<std::int64_t>(schedule_.digest()), from_iteration};
  }
  static void check(const std::vector<Word>& words) {
    std::vector<sync::ScheduleWord> of_ranks;
    for (const auto& [workers, seed, digest, from_iteration] : words) {
      of_ranks.push_back({.workers = static_cast<int>(workers),
                          .seed = static_cast<std::uint64_t>(seed),
                          .digest = static_cast<std::uint64_t>(digest),
                          .from_iteration = from_iteration});
    }
    const Status same = sync::check_words(of_ranks);
    if (!same.ok()) throw py::value_error(same.error().message());
  }
  [[nodiscard]] double rho() const { return sync::mixing_of(schedule_).rho; }

 private:
  const sync::WorkerTree tree_;
  sync::Sensor sensor_;
  sync::Schedule schedule_;
};

}  // namespace

PYBIND11_MODULE(_sync, module) {
  py::class_<Groups>(module, "Groups")
      .def(py::init<const Lists&, std::uint64_t>(), py::arg("racks"), py::arg("seed"))
      .def("period", &Groups::period)
      .def("adjust", &Groups::adjust, py::arg("slow_racks"), py::arg("slow_workers"))
      .def("review", &Groups::review, py::arg("from_iteration"), py::arg("seconds"))
      .def("group_of", &Groups::group_of, py::arg("iteration"), py::arg("worker"))
      .def("word", &Groups::word, py::arg("from_iteration"))
      .def_static("check_words", &Groups::check, py::arg("words"))
      .def("rho", &Groups::rho);
}

}  // namespace thalweg::python
