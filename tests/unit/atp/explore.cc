#include "atp/explore.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>

namespace thalweg::proto::atp_test {
namespace {

constexpr std::size_t kMostPackets = 512;
constexpr Duration kLong = Duration::milliseconds(100'000);  // beyond any timeout of a worker

// Sequences of each job in worlds of two jobs; a single job has twice as many.
constexpr std::uint64_t kSequencesOfTwoJobs = 2;

// The payload counts how often each contribution is in a sum, in four bits each.
struct Counts {
  using Payload = std::uint64_t;
  static Payload contribution(std::uint32_t job, std::uint64_t worker, std::uint64_t sequence,
                              std::uint16_t /*elements*/) {
    // A repetition counts as a sequence of a second job.
    const bool again = wire::atp_is_repetition(sequence);
    const std::uint64_t place =
        (job - 1 + (again ? 1 : 0)) * kSequencesOfTwoJobs + wire::atp_first_time(sequence);
    CHECK(!again || place >= kSequencesOfTwoJobs);
    CHECK(worker < 4 && place < 4);
    return Payload{1} << (4 * (place * 4 + worker));
  }
  static void add(Payload& sum, const Payload& one) { sum += one; }
  static std::uint64_t check(const Payload& payload) { return payload; }
  // As if a fourth worker, which no world with faults has, were in it.
  static void change(Payload& payload) { payload += Payload{1} << 12; }
  static void encode(const Payload& payload, std::string& out) {
    fmt::format_to(std::back_inserter(out), "{:x}.", payload);
  }
};

using ExploredWorld = World<Counts>;
using Packet = ExploredWorld::Packet;
using PacketSet = std::bitset<kMostPackets>;

bool within(const PacketSet& a, const PacketSet& b) { return (a & ~b).none(); }

class Explorer {
 public:
  explicit Explorer(const Exploration& exploration) : about_(exploration) {
    // Slots expire only by lose_slots(), not because a worker's timeout moved the clock.
    about_.shape.table.lifetime = Duration::milliseconds(1'000'000'000);
    const bool both = about_.shape.jobs.size() > 1 || about_.shape.jobs[0].need != nullptr;
    CHECK(!both ||
          static_cast<std::uint64_t>(about_.blocks * about_.tensors) <= kSequencesOfTwoJobs);
  }

  ExplorationReport run() {
    State first{ExploredWorld(about_.shape), {}, Time(), about_.faults};
    first.world.add_duplicates = about_.add_duplicates;
    first.world.changes = about_.faults > 0;
    first.world.trusting = about_.trusting;
    for (int i = 0; i < about_.tensors; ++i) first.world.start_all(about_.blocks, first.now);
    for (std::size_t j = 0; j < first.world.workers.size(); ++j) {
      for (std::size_t w = 0; w < first.world.workers[j].size(); ++w) poll(first, j, w);
    }
    visit(std::move(first));
    while (!open_.empty() && report_.violation.empty()) {
      const State state = std::move(open_.back());
      open_.pop_back();
      search(state);
    }
    report_.packets = packets_.size();
    return report_;
  }

 private:
  struct State {
    ExploredWorld world;
    PacketSet sent;
    Time now;
    int faults = 0;  // that may still happen
  };

  // The number of a packet; equal packets have the same number.
  std::size_t number_of(const Packet& packet) {
    const wire::AtpHeader& h = packet.header;
    const Key key{packet.to,      static_cast<int>(h.kind),
                  h.level,        h.job,
                  h.sequence,     h.workers,
                  h.groups,       h.group,
                  h.resend,       h.collision,
                  packet.payload, h.check};
    const auto [place, fresh] = numbers_.emplace(key, packets_.size());
    if (fresh) packets_.push_back(packet);
    CHECK(place->second < kMostPackets, "more than {} packets", kMostPackets);
    return place->second;
  }

  auto sending_in(State& state) {
    return [this, &state](const Packet& packet) { state.sent.set(number_of(packet)); };
  }

  // Sends all that the worker may send, its retransmissions included: sequences are sent one after
  // the other, so that each has a timeout of its own, and all timeouts pass.
  void poll(State& state, std::size_t j, std::size_t w) {
    const auto send = sending_in(state);
    AtpWorker& worker = state.world.workers[j][w];
    for (std::uint32_t i = 0; i <= 4 * worker.options().window; ++i) {
      while (state.world.poll_once(j, w, state.now, send)) {
        state.now += Duration::microseconds(1);
      }
      const auto due = worker.next_timeout();
      if (!due || worker.idle()) return;
      state.now = std::max(state.now, *due);
      worker.on_timeout(state.now);
    }
    state.world.poll_worker(j, w, state.now, send);
  }

  void search(const State& state) {
    ++report_.searched;
    for (std::size_t i = 0; i < packets_.size(); ++i) {
      if (!state.sent.test(i)) continue;
      deliver(state, packets_[i]);
      if (state.faults > 0 && may_change(packets_[i])) {
        Packet changed = packets_[i];
        Counts::change(changed.payload);
        State next = state;
        --next.faults;
        deliver(std::move(next), changed);
      }
    }
    for (std::size_t i = 0; i < state.world.tables.size(); ++i) lose_slots(state, i);
    if (state.faults > 0 && about_.fault == Exploration::Fault::kSlot) change_slots(state);
  }

  // A copy: sending makes packets_ grow.
  void deliver(State state, Packet packet) {
    state.world.deliver(packet, state.now, sending_in(state));
    if (packet.to.kind == Node::Kind::kWorker) poll(state, packet.to.job, packet.to.index);
    visit(std::move(state));
  }

  [[nodiscard]] bool may_change(const Packet& packet) const {
    if (about_.fault == Exploration::Fault::kSlot || packet.header.elements == 0) return false;
    const bool up = packet.header.kind == wire::AtpKind::kGradient;
    if (about_.fault == Exploration::Fault::kContribution) return up;
    // On the last link: what a switch sends on could arrive many times.
    return packet.to.kind == Node::Kind::kWorker;
  }

  void change_slots(const State& state) {
    for (std::size_t i = 0; i < state.world.tables.size(); ++i) {
      for (std::uint32_t slot = 0; slot < state.world.tables[i].options().slots; ++slot) {
        if (!state.world.tables[i].in_use(slot)) continue;
        State next = state;
        --next.faults;
        next.world.change_slot(i, slot);
        visit(std::move(next));
      }
    }
  }

  // The switch restarts, or the lifetime of one slot passes.
  void lose_slots(const State& state, std::size_t i) {
    const switches::AggregateTable& table = state.world.tables[i];
    if (table.slots_in_use() == 0) return;
    State next = state;
    next.world.tables[i].restart();
    visit(std::move(next));
    for (std::uint32_t slot = 0; slot < table.options().slots; ++slot) {
      if (!table.in_use(slot)) continue;
      next = state;
      switches::AggregateTable& changed = next.world.tables[i];
      changed.sweep(next.now, slot);
      changed.sweep(next.now + changed.options().lifetime, 1);
      changed.sweep(next.now, table.options().slots - slot - 1);
      CHECK(changed.slots_in_use() + 1 == table.slots_in_use() && !changed.in_use(slot));
      visit(std::move(next));
    }
  }

  void visit(State state) {
    if (!report_.violation.empty()) return;
    ++report_.transitions;
    report_.violation = state.world.violation();
    report_.repeated = std::max(report_.repeated, state.world.repeated);
    note_causes(state.world);
    std::string key;
    state.world.encode_state(key);
    key += static_cast<char>('0' + state.faults);
    const auto [place, fresh] = seen_.try_emplace(std::move(key));
    if (fresh) examine(state);
    std::vector<PacketSet>& sets = place->second;
    for (const PacketSet& set : sets) {
      if (within(state.sent, set)) return;
    }
    std::erase_if(sets, [&](const PacketSet& set) { return within(set, state.sent); });
    sets.push_back(state.sent);
    open_.push_back(std::move(state));
  }

  void note_causes(const ExploredWorld& world) {
    for (const switches::AggregateTable& table : world.tables) {
      for (const JobShape& job : about_.shape.jobs) {
        const switches::AggregateCounters& counters = *table.counters(job.id);
        for (std::size_t i = 0; i < switches::kAggregateCauseCount; ++i) {
          if (counters.packets[i] > 0) report_.at_switches.set(i);
        }
      }
    }
    for (const auto& job : world.servers) {
      for (const AtpServer& server : job) {
        for (std::size_t i = 0; i < kAtpServerCauseCount; ++i) {
          if (server.count(static_cast<AtpServerAction::Cause>(i)) > 0) report_.at_servers.set(i);
        }
      }
    }
  }

  // Called once for each state of the nodes.
  void examine(const State& state) {
    if (++report_.states > about_.most_states) report_.violation = "more states than allowed";
    if (state.world.all_idle()) {
      ++report_.finished;
      if (state.world.placed != all_sums(state.world)) report_.violation = "a worker has failed";
      for (const switches::AggregateTable& table : state.world.tables) {
        if (table.slots_in_use() > 0) {
          ++report_.stale_slots;
          break;
        }
      }
      check_no_leak(state);
      return;
    }
    check_completes(state);
  }

  [[nodiscard]] std::uint64_t all_sums(const ExploredWorld& world) const {
    std::uint64_t workers = 0;
    for (const auto& job : world.workers) workers += job.size();
    return workers * static_cast<std::uint64_t>(about_.blocks * about_.tensors);
  }

  void check_no_leak(State state) {
    for (switches::AggregateTable& table : state.world.tables) {
      table.sweep(state.now + table.options().lifetime, table.options().slots);
      if (table.slots_in_use() != 0) report_.violation = "a slot is leaked";
      for (const JobShape& job : about_.shape.jobs) {
        if (table.counters(job.id)->slots != 0) report_.violation = "a job's slot is leaked";
      }
    }
  }

  // Loses all packets in flight, loses none from then on, and checks that every job completes.
  void check_completes(State state) {
    const int most_rounds = about_.faults > 0 ? 12 : 8;
    for (int round = 0; round < most_rounds && !state.world.all_idle(); ++round) {
      std::vector<Packet> flight;
      const auto send = [&](const Packet& packet) { flight.push_back(packet); };
      state.now += kLong;
      for (std::size_t j = 0; j < state.world.workers.size(); ++j) {
        for (std::size_t w = 0; w < state.world.workers[j].size(); ++w) {
          state.world.workers[j][w].on_timeout(state.now);
          state.world.poll_worker(j, w, state.now, send);
        }
      }
      for (std::size_t i = 0; i < flight.size(); ++i) {
        const Packet packet = flight[i];
        state.world.deliver(packet, state.now, send);
      }
    }
    if (!state.world.all_idle()) report_.violation = "a state from which nothing completes";
    if (!state.world.violation().empty()) report_.violation = state.world.violation();
  }

  using Key = std::tuple<Node, int, std::uint8_t, std::uint32_t, std::uint64_t, std::uint32_t,
                         std::uint32_t, std::uint8_t, bool, bool, std::uint64_t, std::uint64_t>;

  Exploration about_;
  ExplorationReport report_;
  std::vector<Packet> packets_;
  std::map<Key, std::size_t> numbers_;
  std::unordered_map<std::string, std::vector<PacketSet>> seen_;
  std::vector<State> open_;
};

}  // namespace

ExplorationReport explore(const Exploration& exploration) { return Explorer(exploration).run(); }

}  // namespace thalweg::proto::atp_test
