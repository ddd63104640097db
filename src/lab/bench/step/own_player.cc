#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <thread>
#include <utility>

#include <thalweg/version.h>

#include "lab/bench/step/limit.h"
#include "lab/bench/step/player.h"
#include "tensor/tags.h"
#include "topology/format/load.h"

namespace thalweg::lab::step {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kMeetLimit = std::chrono::seconds(120);
// A call is given up when it takes this many times longer than the links need, and no earlier than
// after the usual deadline.
constexpr double kCallPatience = 100;
// Steps in which a library has to make its choices.
constexpr int kMostTrialSteps = 150;
// How far an average of equal values may be from them: ATP adds up in fixed point.
constexpr float kTolerance = 1e-3F;

Clock::duration clock_time(Duration time) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::max(0.0, time.s())));
}

class OwnPlayer final : public Player {
 public:
  OwnPlayer(Communicator communicator, const Schedule& schedule, std::vector<CallOptions> calls,
            bool tries)
      : communicator_(std::move(communicator)),
        schedule_(schedule),
        calls_(std::move(calls)),
        tries_(tries) {
    for (const Bucket& bucket : schedule_.buckets) {
      std::vector<float>& tensor = tensors_.emplace_back(static_cast<std::size_t>(bucket.elements));
      std::int64_t element = 0;
      for (float& value : tensor) value = value_of(element++);
    }
    for (std::size_t b = 0; b < calls_.size() && calls_[b].straggler_bound > 0; ++b) {
      residuals_.emplace_back(tensors_[b].size(), 0.0F);
      calls_[b].residual = residuals_[b].data();
    }
  }

  [[nodiscard]] std::string version() const override { return std::string("thalweg ") + kVersion; }

  [[nodiscard]] std::vector<AutoDecision> choices() const override {
    return communicator_.auto_choices();
  }

  Result<Turn> play(int warm_up, int timed) override {
    for (int step = 0; step < kMostTrialSteps; ++step) {
      // All ranks know the same after the same calls.
      if (std::ranges::all_of(choices(), &AutoDecision::decided) && (step > 0 || !tries_)) break;
      THALWEG_TRY_STATUS(wait_for_start());
      THALWEG_TRY_STATUS(forward());
      THALWEG_TRY_STATUS(backward());
    }
    Turn turn;
    Clock::time_point began;
    for (int step = 0; step < warm_up + timed; ++step) {
      THALWEG_TRY_STATUS(wait_for_start());
      const Clock::time_point now = Clock::now();
      if (step > warm_up) turn.steps_ms.push_back(ms_between(began, now));
      began = now;
      THALWEG_TRY_STATUS(forward());
      THALWEG_TRY_STATUS(backward());
    }
    THALWEG_TRY_STATUS(wait_for_start());
    turn.steps_ms.push_back(ms_between(began, Clock::now()));
    THALWEG_TRY_STATUS(wait_for(0));
    turn.wrong = count_wrong();
    return turn;
  }

 private:
  static double ms_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  }

  // Waits until the buckets from `first` on are back. Buckets are counted from the back of the
  // model.
  Status wait_for(std::size_t first) {
    while (flying_.size() > first) {
      THALWEG_TRY_STATUS(flying_.back().wait());
      flying_.pop_back();
    }
    return ok_status();
  }

  // Waits until the next step may begin.
  Status wait_for_start() {
    return wait_for(schedule_.order == Order::kDdp ? 0 : schedule_.buckets.size() - 1);
  }

  Status forward() {
    Clock::time_point until = Clock::now();
    for (std::size_t b = schedule_.buckets.size(); b-- > 0;) {
      if (flying_.size() > b) {
        THALWEG_TRY_STATUS(wait_for(b));
        until = std::max(until, Clock::now());
      }
      until += clock_time(schedule_.buckets[b].forward);
      if (schedule_.order == Order::kLayerwise || b == 0) std::this_thread::sleep_until(until);
    }
    return ok_status();
  }

  Status backward() {
    Clock::time_point until = Clock::now();
    for (std::size_t b = 0; b < schedule_.buckets.size(); ++b) {
      until += clock_time(schedule_.buckets[b].backward);
      std::this_thread::sleep_until(until);
      // What was left out of the last step would otherwise be missing in this one's contribution.
      if (!residuals_.empty()) {
        std::int64_t element = 0;
        for (float& value : tensors_[b]) value = value_of(element++);
      }
      THALWEG_TRY(Operation started,
                  communicator_.allreduce_async(TensorSpan::of(tensors_[b]), calls_[b]));
      flying_.push_back(std::move(started));
    }
    return ok_status();
  }

  [[nodiscard]] std::int64_t count_wrong() const {
    // Averages that left something out, or make up for it, are not those of full contributions.
    if (!residuals_.empty()) return 0;
    std::int64_t wrong = 0;
    for (const std::vector<float>& tensor : tensors_) {
      std::int64_t element = 0;
      for (const float value : tensor) {
        // Not "above": an element that is no number is wrong too.
        wrong += !(std::abs(value - value_of(element++)) <= kTolerance) ? 1 : 0;
      }
    }
    return wrong;
  }

  Communicator communicator_;
  const Schedule& schedule_;
  std::vector<CallOptions> calls_;             // by bucket
  std::vector<std::vector<float>> tensors_;    // by bucket
  std::vector<std::vector<float>> residuals_;  // by bucket; empty without a straggler bound
  bool tries_;                                 // the communicator chooses by trials
  std::vector<Operation> flying_;              // the first buckets of a step, which have been sent
};

std::vector<CallOptions> calls_of(const Library& library, const Settings& settings) {
  std::vector<CallOptions> calls;
  const std::size_t buckets = settings.schedule.buckets.size();
  for (std::size_t b = 0; b < buckets; ++b) {
    CallOptions call{.op = ReduceOp::kMean};
    if (library.bounded) call.loss_bound = settings.bound;
    if (library.straggling) {
      call.straggler_bound = settings.straggler_bound;
      call.straggler_window = settings.straggler_window;
    }
    if (library.prioritized) {
      const std::size_t from_front = buckets - 1 - b;
      call.priority = static_cast<int>(from_front);
      call.dlcp_queue = tensor::priority_of_layer(from_front, buckets,
                                                  static_cast<std::size_t>(settings.priorities));
    }
    if (settings.topology) {
      // The buckets of a step are in flight together.
      const Duration needed =
          step_limit(*settings.topology, library, settings.schedule, settings.bound);
      call.deadline = std::max(
          call.deadline, std::chrono::nanoseconds(std::llround(kCallPatience * needed.s() * 1e9)));
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace

Result<std::unique_ptr<Player>> make_own_player(const Library& library, const Settings& settings) {
  CommunicatorOptions options{.group = "step-" + library.name,
                              .timeout = kMeetLimit,
                              .scheme = library.scheme,
                              .transport = library.transport,
                              .shared_memory = false};
  if (settings.topology) {
    const bool told = library.knows_topology || library.transport == Transport::kAuto;
    if (told) options.topology = topology::topology_to_yaml(*settings.topology);
    options.dlcp_line_rate_gbps =
        static_cast<double>(slowest_host(*settings.topology).bps()) * 1e-9;
  }
  Result<Communicator> communicator = Communicator::create(options);
  if (!communicator.ok()) return communicator.error().within(library.name);
  if (library.transport == Transport::kAtp && !communicator->has_switch()) {
    return Error(library.name +
                 ": no switch sums for this job: THALWEG_SWITCH must name the control socket of "
                 "one that has memory free");
  }
  return std::unique_ptr<Player>(std::make_unique<OwnPlayer>(
      std::move(*communicator), settings.schedule, calls_of(library, settings),
      library.transport == Transport::kAuto));
}

}  // namespace thalweg::lab::step
