#include "exec/progress.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/prng.h"
#include "plan/scheme.h"
#include "topology/format/load.h"

namespace thalweg::exec {
namespace {

std::vector<exec::Run> parts(const RunSet& set, exec::Run within, bool inside) {
  std::vector<exec::Run> found;
  const auto note = [&](exec::Run run) { found.push_back(run); };
  if (inside) {
    set.inside(within, note);
  } else {
    set.outside(within, note);
  }
  return found;
}

TEST(RunSet, add__joins_neighbours_and_keeps_gaps) {
  RunSet set;
  set.add({4, 6});
  set.add({8, 9});
  set.add({0, 2});
  EXPECT_EQ(set.count(), 5U);
  EXPECT_EQ(parts(set, {0, 10}, true), (std::vector<exec::Run>{{0, 2}, {4, 6}, {8, 9}}));
  EXPECT_EQ(parts(set, {1, 9}, false), (std::vector<exec::Run>{{2, 4}, {6, 8}}));
  set.add({6, 8});
  set.add({2, 4});
  EXPECT_EQ(parts(set, {0, 10}, true), (std::vector<exec::Run>{{0, 9}}));
  EXPECT_EQ(parts(set, {3, 12}, false), (std::vector<exec::Run>{{9, 12}}));
  EXPECT_TRUE(parts(set, {9, 12}, true).empty());
}

// Every second packet of 400 MB comes late. If a call cost more with more gaps, this would take
// many seconds instead of milliseconds.
TEST(RunSet, many_gaps__do_not_slow_it_down) {
  constexpr std::size_t kUnits = 300'000;
  const auto begin = std::chrono::steady_clock::now();
  RunSet set;
  for (const std::size_t from : {0U, 1U}) {
    std::size_t found = 0;
    for (std::size_t unit = from; unit < kUnits; unit += 2) {
      const exec::Run run{unit, unit + 1};
      set.add(run);
      set.inside(run, [&](exec::Run part) { found += part.size(); });
    }
    EXPECT_EQ(found, kUnits / 2);
    EXPECT_EQ(set.count(), (from + 1) * kUnits / 2);
  }
  EXPECT_EQ(parts(set, {0, kUnits}, true), (std::vector<exec::Run>{{0, kUnits}}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(RunSet, random__as_a_vector_of_bits) {
  Prng prng(5);
  for (int round = 0; round < 200; ++round) {
    const std::size_t units = round % 2 == 0 ? 40 : 300;
    const std::size_t most = round % 2 == 0 ? 5 : 150;  // in one add()
    std::vector<bool> bits(units);
    RunSet set;
    for (int adds = 0; adds < 30; ++adds) {
      const std::size_t begin = prng.below(units);
      std::size_t end = begin;
      while (end < units && !bits[end] && end < begin + most) bits[end++] = true;
      set.add({begin, end});
      const std::size_t from = prng.below(units);
      const exec::Run window{from, from + prng.below(units - from + 1)};
      for (const bool inside : {true, false}) {
        std::vector<bool> found(units);
        for (const exec::Run& run : parts(set, window, inside)) {
          ASSERT_LT(run.begin, run.end);
          for (std::size_t i = run.begin; i < run.end; ++i) found[i] = true;
        }
        for (std::size_t i = 0; i < units; ++i) {
          const bool within = i >= window.begin && i < window.end;
          ASSERT_EQ(found[i], within && bits[i] == inside) << "round " << round << " unit " << i;
        }
      }
    }
  }
}

// A rank's part of a plan, where units come and leave in random order. The model asks of every unit
// by itself what the rule at the top of progress.h says.
template <class Extent>
class Model {
 public:
  Model(const RankPlan& plan, bool in_place, std::size_t units)
      : plan_(plan), in_place_(in_place), units_(units) {
    const auto table = [&](std::size_t count) {
      return std::vector<std::vector<bool>>(count, std::vector<bool>(units));
    };
    here_ = table(plan.arrivals().size());
    applied_ = table(plan.arrivals().size());
    ready_ = table(plan.sends().size());
    left_ = table(plan.sends().size());
    progress_.start(plan, in_place, [units](std::uint32_t) { return units; });
    progress_.begin(*this);
    check();
  }

  // Actions.
  void apply(std::uint32_t arrival, exec::Run run) {
    for (std::size_t i = run.begin; i < run.end; ++i) {
      ASSERT_TRUE(due(arrival, i)) << "arrival " << arrival << " unit " << i;
      ASSERT_FALSE(applied_[arrival][i]);
      applied_[arrival][i] = true;
    }
  }
  void ready(std::uint32_t send, exec::Run run) {
    for (std::size_t i = run.begin; i < run.end; ++i) {
      ASSERT_FALSE(ready_[send][i]) << "send " << send << " unit " << i;
      ready_[send][i] = true;
    }
  }

  // Lets something come or leave. False: there is nothing left.
  bool step(Prng& prng) {
    std::vector<std::pair<std::uint32_t, bool>> able;  // arrival or send; whether it comes
    for (std::uint32_t arrival = 0; arrival < here_.size(); ++arrival) {
      if (next(here_[arrival], nullptr, prng) < units_) able.emplace_back(arrival, true);
    }
    for (std::uint32_t send = 0; send < left_.size(); ++send) {
      if (next(left_[send], &ready_[send], prng) < units_) able.emplace_back(send, false);
    }
    if (able.empty()) return false;
    const auto [index, comes] = able[prng.below(able.size())];
    std::vector<bool>& done = comes ? here_[index] : left_[index];
    const std::vector<bool>* may = comes ? nullptr : &ready_[index];
    const std::size_t begin = next(done, may, prng);
    std::size_t end = begin;
    while (end < units_ && !done[end] && (may == nullptr || (*may)[end]) && end < begin + 3) {
      done[end++] = true;
    }
    if (comes) {
      progress_.come(index, {begin, end}, *this);
    } else {
      progress_.leave(index, {begin, end}, *this);
    }
    check();
    return true;
  }

  void check() const {
    for (std::uint32_t arrival = 0; arrival < here_.size(); ++arrival) {
      for (std::size_t i = 0; i < units_; ++i) {
        ASSERT_EQ(applied_[arrival][i], here_[arrival][i] && due(arrival, i))
            << arrival << ' ' << i;
      }
    }
    for (std::uint32_t send = 0; send < ready_.size(); ++send) {
      const RankPlan::Send& s = plan_.sends()[send];
      for (std::size_t i = 0; i < units_; ++i) {
        const auto& arrivals = plan_.buffers()[s.buffer].arrivals;
        ASSERT_EQ(ready_[send][i], s.after == 0 || applied_[arrivals[s.after - 1]][i]);
      }
    }
  }

  void check_end() const {
    for (std::uint32_t arrival = 0; arrival < here_.size(); ++arrival) {
      EXPECT_TRUE(progress_.all_applied(arrival)) << arrival;
    }
    for (std::uint32_t send = 0; send < left_.size(); ++send) {
      EXPECT_TRUE(progress_.all_left(send)) << send;
    }
  }

 private:
  // The next unit that may come or leave: in order, or anywhere.
  std::size_t next(const std::vector<bool>& done, const std::vector<bool>* may, Prng& prng) const {
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < units_; ++i) {
      if (done[i]) continue;
      if (may == nullptr || (*may)[i]) able.push_back(i);
      if constexpr (std::is_same_v<Extent, Prefix>) break;
    }
    return able.empty() ? units_ : able[prng.below(able.size())];
  }
  bool due(std::uint32_t arrival, std::size_t unit) const {
    const RankPlan::Arrival& planned = plan_.arrivals()[arrival];
    const RankPlan::Buffer& buffer = plan_.buffers()[planned.buffer];
    bool result = planned.order == 0 || applied_[buffer.arrivals[planned.order - 1]][unit];
    for (const std::uint32_t send : buffer.sends) {
      if (!in_place_ || plan_.sends()[send].after != planned.order) continue;
      result = result && left_[send][unit];
    }
    return result;
  }

  const RankPlan& plan_;
  bool in_place_;
  std::size_t units_;
  Progress<Extent> progress_;
  std::vector<std::vector<bool>> here_;     // [arrival][unit]
  std::vector<std::vector<bool>> applied_;  // [arrival][unit]
  std::vector<std::vector<bool>> ready_;    // [send][unit]
  std::vector<std::vector<bool>> left_;     // [send][unit]
};

template <class Extent>
void run_all() {
  Prng prng(6);
  for (const char* scheme : {"ring", "halving-doubling", "butterfly", "ps", "rat", "kary"}) {
    for (const int ranks : {2, 3, 4, 8}) {
      const topology::Topology topology =
          *topology::topology_from_shorthand(fmt::format("single-switch:hosts={}", ranks));
      const auto plan = plan::make_plan(scheme, {.topology = topology, .elements = 96});
      if (!plan.ok()) continue;
      for (const bool in_place : {true, false}) {
        for (int rank = 0; rank < plan->ranks; ++rank) {
          SCOPED_TRACE(
              fmt::format("{} of {}, rank {}, in place {}", scheme, ranks, rank, in_place));
          const RankPlan part(*plan, Rank(rank));
          Model<Extent> model(part, in_place, 7);
          while (!testing::Test::HasFatalFailure() && model.step(prng)) {
          }
          if (testing::Test::HasFatalFailure()) return;
          model.check_end();
        }
      }
    }
  }
}

TEST(Progress, random__every_unit_goes_by_the_rule_in_order) { run_all<Prefix>(); }
TEST(Progress, random__every_unit_goes_by_the_rule_in_any_order) { run_all<RunSet>(); }

}  // namespace
}  // namespace thalweg::exec
