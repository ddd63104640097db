#include "sync/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/prng.h"
#include "sync/connected.h"

namespace thalweg::sync {
namespace {

// How many blocks are tried until the workers are connected; a handful is enough.
constexpr int kMaxBlocks = 64;

// A member of a region in one iteration: the worker that represents it, and whether it is slow.
struct Member {
  Rank worker;
  bool slow = false;
};

// A sequence of turns through 0 … length−1: in order, or shuffled.
class Turns {
 public:
  Turns(std::size_t length, Prng* shuffle) : order_(length) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (shuffle != nullptr) shuffle->shuffle(std::span(order_));
  }
  [[nodiscard]] std::size_t at(std::size_t t) const { return order_[t]; }

 private:
  std::vector<std::size_t> order_;
};

class Generator {
 public:
  Generator(const WorkerTree& tree, const Bottlenecks& bottlenecks, std::uint64_t seed)
      : tree_(tree),
        random_(seed),
        slow_region_(tree.regions().size(), false),
        slow_worker_(static_cast<std::size_t>(tree.worker_count()), false) {
    for (const int region : bottlenecks.regions) {
      slow_region_[static_cast<std::size_t>(region)] = true;
    }
    for (const Rank worker : bottlenecks.workers) slow_worker_[worker.index()] = true;
    for (std::size_t r = 0; r < tree.regions().size(); ++r) {
      if (r == 0 && bottlenecks.empty()) continue;  // the root's members do not take turns
      block_ = std::max(block_, tree.regions()[r].member_count());
    }
  }

  Schedule run(std::uint64_t seed) {
    Schedule schedule{.workers = tree_.worker_count(), .seed = seed, .period = {}};
    Connected connected(schedule.workers);
    for (int b = 0; b < kMaxBlocks; ++b) {
      begin_block(b > 0);
      for (std::size_t t = 0; t < block_; ++t) {
        schedule.period.push_back(groups_at(t));
        for (const Group& group : schedule.period.back()) connected.join(group);
      }
      if (connected.is_one()) return schedule;
    }
    CHECK(false, "{} blocks of {} iterations do not connect {} workers", kMaxBlocks, block_,
          schedule.workers);
  }

 private:
  void begin_block(bool shuffled) {
    representative_turns_.clear();
    partner_turns_.clear();
    for (std::size_t r = 0; r < tree_.regions().size(); ++r) {
      representative_turns_.emplace_back(block_, shuffled ? &random_ : nullptr);
      partner_turns_.emplace_back(block_, shuffled ? &random_ : nullptr);
    }
  }

  Grouping groups_at(std::size_t t) {
    Grouping groups;
    std::vector<Member> up(tree_.regions().size());  // each region's representative
    // Children come after their parents, so this loop visits them first.
    for (std::size_t r = tree_.regions().size(); r-- > 0;) {
      const WorkerRegion& region = tree_.regions()[r];
      std::vector<Member> members;
      for (const int child : region.children)
        members.push_back(up[static_cast<std::size_t>(child)]);
      for (const Rank worker : region.workers) {
        members.push_back({worker, slow_worker_[worker.index()]});
      }
      if (r > 0) {
        up[r] = take_representative(members, representative_turns_[r].at(t));
        up[r].slow = up[r].slow || slow_region_[r];
      }
      divide(members, partner_turns_[r].at(t), groups);
    }
    for (Group& group : groups) std::ranges::sort(group);
    std::ranges::sort(groups);
    return groups;
  }

  static Member take_representative(std::vector<Member>& members, std::size_t turn) {
    const auto regular = std::ranges::count(members, false, &Member::slow);
    const bool spare_slow = regular >= 2;
    const auto candidates = spare_slow ? static_cast<std::size_t>(regular) : members.size();
    std::size_t left = turn % candidates;
    for (auto it = members.begin();; ++it) {
      if (spare_slow && it->slow) continue;
      if (left-- > 0) continue;
      const Member chosen = *it;
      members.erase(it);
      return chosen;
    }
  }

  static void divide(const std::vector<Member>& members, std::size_t turn, Grouping& groups) {
    std::vector<Rank> slow;
    std::vector<Rank> regular;
    for (const Member& member : members) (member.slow ? slow : regular).push_back(member.worker);
    const auto rotate = [turn](std::vector<Rank>& list) {
      if (list.empty()) return;
      std::ranges::rotate(list, list.begin() + static_cast<std::ptrdiff_t>(turn % list.size()));
    };
    if (!slow.empty()) {
      // The longer list rotates, so that members without a partner now get one later.
      rotate(slow.size() > regular.size() ? slow : regular);
    }
    const std::size_t pairs = std::min(slow.size(), regular.size());
    for (std::size_t i = 0; i < pairs; ++i) groups.push_back({slow[i], regular[i]});
    for (std::size_t i = pairs; i < slow.size(); i += 2) {
      groups.push_back({slow[i]});
      if (i + 1 < slow.size()) groups.back().push_back(slow[i + 1]);
    }
    if (regular.size() > pairs) {
      groups.emplace_back(regular.begin() + static_cast<std::ptrdiff_t>(pairs), regular.end());
    }
  }

  const WorkerTree& tree_;
  Prng random_;
  std::vector<bool> slow_region_;
  std::vector<bool> slow_worker_;
  std::size_t block_ = 1;  // iterations until every member of every region has had its turn
  std::vector<Turns> representative_turns_;  // [region]
  std::vector<Turns> partner_turns_;         // [region]
};

template <class T>
bool strictly_ascending(const std::vector<T>& list) {
  return std::ranges::adjacent_find(list, [](const T& a, const T& b) { return !(a < b); }) ==
         list.end();
}

Status check_bottlenecks(const WorkerTree& tree, const Bottlenecks& bottlenecks) {
  const auto regions = static_cast<int>(tree.regions().size());
  for (const int region : bottlenecks.regions) {
    if (region < 1 || region >= regions) {
      return Error(fmt::format("slow region {} is not allowed: 1 to {}", region, regions - 1));
    }
  }
  for (const Rank worker : bottlenecks.workers) {
    if (!worker.valid() || worker.value() >= tree.worker_count()) {
      return Error(fmt::format("slow worker {} is not allowed: 0 to {}", worker.value(),
                               tree.worker_count() - 1));
    }
  }
  if (!strictly_ascending(bottlenecks.regions) || !strictly_ascending(bottlenecks.workers)) {
    return Error("bottlenecks: a region or a worker is named twice or out of order");
  }
  return ok_status();
}

}  // namespace

const Group& Schedule::group_of(std::int64_t iteration, Rank worker) const {
  const Grouping& groups = at(iteration);
  const auto found = std::ranges::find_if(
      groups, [&](const Group& group) { return std::ranges::binary_search(group, worker); });
  CHECK(found != groups.end(), "worker {} is in no group", worker.value());
  return *found;
}

std::uint64_t Schedule::digest() const {
  std::uint64_t value = mix_bits(static_cast<std::uint64_t>(workers));
  const auto add = [&value](std::uint64_t x) { value = mix_bits(value * kGoldenStep + x + 1); };
  for (const Grouping& groups : period) {
    add(groups.size());
    for (const Group& group : groups) {
      add(group.size());
      for (const Rank worker : group) add(static_cast<std::uint64_t>(worker.value()));
    }
  }
  return value;
}

Schedule init_groups(const WorkerTree& tree, std::uint64_t seed) {
  Result<Schedule> schedule = adjust_groups(tree, {}, seed);
  CHECK(schedule.ok());
  return std::move(*schedule);
}

Result<Schedule> adjust_groups(const WorkerTree& tree, const Bottlenecks& bottlenecks,
                               std::uint64_t seed) {
  THALWEG_TRY_STATUS(check_bottlenecks(tree, bottlenecks));
  Schedule schedule = Generator(tree, bottlenecks, seed).run(seed);
  const Status proof = check_schedule(schedule, tree);
  CHECK(proof.ok(), "{}", proof.error().message());
  return schedule;
}

Status check_words(std::span<const ScheduleWord> words) {
  for (std::size_t r = 0; r < words.size(); ++r) {
    const auto differs = [&](const char* what, auto ours, auto first) {
      return Error(
          fmt::format("rank {} has another {} than rank 0: {}, not {}", r, what, ours, first));
    };
    const ScheduleWord& word = words[r];
    const ScheduleWord& first = words[0];
    const auto ranks = static_cast<int>(words.size());
    if (word.workers != ranks) {
      return Error(fmt::format("rank {} has a schedule for {} workers, but there are {}", r,
                               word.workers, ranks));
    }
    if (word.seed != first.seed) return differs("seed", word.seed, first.seed);
    if (word.digest != first.digest) {
      return differs("schedule", fmt::format("{:016x}", word.digest),
                     fmt::format("{:016x}", first.digest));
    }
    if (word.from_iteration != first.from_iteration) {
      return differs("first iteration", word.from_iteration, first.from_iteration);
    }
  }
  return ok_status();
}

}  // namespace thalweg::sync
