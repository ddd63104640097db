// SwitchML's workers and switch together, under loss, duplication and reordering: the sums equal
// those of a serial addition.
#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "sim/baselines/switchml_switch.h"
#include "sim/baselines/switchml_worker.h"

namespace thalweg::sim {
namespace {

constexpr std::uint32_t kJob = 5;

struct Trial {
  std::uint8_t workers = 3;
  std::uint32_t pool = 4;
  std::int64_t blocks = 50;
  double loss = 0;
  double duplication = 0;
};

class Rack {
 public:
  Rack(const Trial& trial, std::uint64_t seed)
      : trial_(trial), prng_(seed), table_(table_of(trial)) {
    EXPECT_TRUE(table_.add_job({kJob, trial.workers, trial.pool}).ok());
    slots_.resize(table_.slots_in_use());
    for (std::uint8_t w = 0; w < trial.workers; ++w) {
      SwitchmlWorkerOptions options;
      options.job = kJob;
      options.index = w;
      options.workers = trial.workers;
      options.pool = trial.pool;
      options.elements = 1;
      workers_.emplace_back(options);
      proto::AtpTensorSpec spec;
      spec.elements = trial.blocks;
      EXPECT_TRUE(workers_.back().start(spec, now_).ok());
    }
  }

  // Runs until every worker has every sum, and expects each once.
  void run() {
    for (int step = 0; step < 1'000'000 && !done(); ++step) {
      for (SwitchmlWorker& worker : workers_) poll(worker);
      if (flight_.empty()) {
        now_ += Duration::milliseconds(1);
        for (SwitchmlWorker& worker : workers_) worker.on_timeout(now_);
        continue;
      }
      now_ += Duration::microseconds(1);
      // Picks any of the packets in flight.
      const auto i = static_cast<std::ptrdiff_t>(prng_.below(flight_.size()));
      const Flight flight = flight_[static_cast<std::size_t>(i)];
      if (!prng_.chance(trial_.duplication)) flight_.erase(flight_.begin() + i);
      deliver(flight);
    }
    EXPECT_TRUE(done());
    EXPECT_EQ(placed_, static_cast<std::uint64_t>(trial_.blocks) * trial_.workers);
  }

  [[nodiscard]] std::uint64_t sum_of(std::uint64_t (SwitchmlWorker::*counter)() const) const {
    std::uint64_t sum = 0;
    for (const SwitchmlWorker& worker : workers_) sum += (worker.*counter)();
    return sum;
  }

 private:
  struct Flight {
    int to = -1;  // a worker; -1: the switch
    wire::AtpHeader header;
    std::int64_t value = 0;
  };

  static SwitchmlTable table_of(const Trial& trial) {
    switches::AggregateOptions options;
    options.slots = 2 * trial.pool;
    return SwitchmlTable(options);
  }
  static std::int64_t contribution(std::uint64_t worker, std::uint64_t sequence) {
    return static_cast<std::int64_t>(mix_bits(worker * 1000 + sequence + 1) & 0xffff);
  }
  [[nodiscard]] bool done() const {
    for (const SwitchmlWorker& worker : workers_) {
      if (!worker.idle()) return false;
    }
    return true;
  }
  void send(const Flight& flight) {
    if (!prng_.chance(trial_.loss)) flight_.push_back(flight);
  }
  void poll(SwitchmlWorker& worker) {
    proto::AtpTransmit transmit;
    while (worker.poll_transmit(now_, transmit)) {
      const auto w = static_cast<std::uint64_t>(&worker - workers_.data());
      send({-1, transmit.header, contribution(w, transmit.header.sequence)});
    }
  }
  void deliver(const Flight& flight) {
    if (flight.to >= 0) return at_worker(flight);
    wire::AtpHeader header = flight.header;
    const switches::AggregateAction action = table_.on_update(header);
    std::int64_t& slot = slots_[action.slot];
    if (action.payload == switches::AggregateAction::Payload::kStore) slot = flight.value;
    if (action.payload == switches::AggregateAction::Payload::kAdd) slot += flight.value;
    if (action.emit == switches::AggregateAction::Emit::kNothing) return;
    for (int w = 0; w < trial_.workers; ++w) {
      if ((header.workers & wire::atp_bit(static_cast<unsigned>(w))) != 0) send({w, header, slot});
    }
  }
  void at_worker(const Flight& flight) {
    SwitchmlWorker& worker = workers_[static_cast<std::size_t>(flight.to)];
    if (worker.on_result(flight.header, now_).verdict != proto::AtpPlacement::Verdict::kPlace)
      return;
    ++placed_;
    std::int64_t sum = 0;
    for (std::uint64_t w = 0; w < trial_.workers; ++w) {
      sum += contribution(w, flight.header.sequence);
    }
    EXPECT_EQ(flight.value, sum) << "sequence " << flight.header.sequence;
  }

  Trial trial_;
  Prng prng_;
  SwitchmlTable table_;
  std::vector<std::int64_t> slots_;
  std::vector<SwitchmlWorker> workers_;
  std::vector<Flight> flight_;
  Time now_;
  std::uint64_t placed_ = 0;
};

TEST(Switchml, sums__without_loss_nothing_is_sent_twice) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rack rack({}, seed);
    rack.run();
    EXPECT_EQ(rack.sum_of(&SwitchmlWorker::retransmitted), 0U);
    EXPECT_EQ(rack.sum_of(&SwitchmlWorker::dropped), 0U);
  }
}

TEST(Switchml, sums__exact_under_loss_duplication_and_reordering) {
  std::uint64_t dropped = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    Trial trial;
    trial.workers = static_cast<std::uint8_t>(1 + prng.below(8));
    trial.pool = static_cast<std::uint32_t>(1 + prng.below(8));
    trial.loss = 0.1;
    trial.duplication = 0.3;
    Rack rack(trial, seed);
    rack.run();
    dropped += rack.sum_of(&SwitchmlWorker::dropped);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(dropped, 0U);
}

TEST(Switchml, deadline__ends_what_cannot_be_completed) {
  SwitchmlWorkerOptions options;
  options.job = kJob;
  options.workers = 2;
  SwitchmlWorker worker(options);
  proto::AtpTensorSpec spec;
  spec.elements = 10;
  spec.deadline = Duration::milliseconds(5);
  ASSERT_TRUE(worker.start(spec, Time()).ok());
  worker.on_timeout(Time() + spec.deadline);
  proto::AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.error, "job 5: worker 0: deadline: no result from the switch");
  proto::AtpTransmit transmit;
  EXPECT_FALSE(worker.poll_transmit(Time(), transmit));
}

}  // namespace
}  // namespace thalweg::sim
