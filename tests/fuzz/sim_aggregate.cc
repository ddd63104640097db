// Gives the aggregation stages any packets that decode: honest ones in any order, lost and
// duplicated, and forged ones of two jobs. A slot must send the sum of what its header names, as
// long as all packets of the job were honest; counters must add up; and once the lifetime has
// passed no slot may be in use.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "sim/baselines/switchml_switch.h"
#include "switch/aggregation/aggregate.h"

namespace thalweg::switches {
namespace {

constexpr std::uint32_t kSlots = 3;
constexpr std::uint8_t kWorkers = 3;  // of group 0; group 1 arrives as whole sums

// How often a sum includes each worker's contribution, four bits each; the last count is group 1's.
std::uint64_t counts_of(const wire::AtpHeader& header) {
  std::uint64_t counts = 0;
  for (unsigned w = 0; w < kWorkers; ++w) {
    const bool in =
        (header.groups & 1) != 0 || (header.group == 0 && (header.workers & wire::atp_bit(w)));
    if (in) counts += std::uint64_t{1} << (4 * w);
  }
  if ((header.groups & 2) != 0) counts += std::uint64_t{1} << (4 * kWorkers);
  return counts;
}

class Game {
 public:
  explicit Game(Input input) : input_(input), table_(options_of(input_.byte())), pool_({}) {
    for (const std::uint32_t id : {1U, 2U}) {
      AggregateJob job;
      job.id = id;
      job.groups = 1;
      job.second_level = true;
      job.window = 2;
      job.slot_limit = id == 2 ? 2 : 0;
      CHECK(table_.add_job(job).ok());
      CHECK(pool_.add_job({id, kWorkers, 2}).ok());
    }
  }

  void play() {
    while (!input_.empty()) operate();
    now_ += table_.options().lifetime;
    table_.sweep(now_, kSlots);
    CHECK(table_.slots_in_use() == 0);
    for (const std::uint32_t id : {1U, 2U}) CHECK(table_.counters(id)->slots == 0);
  }

 private:
  static AggregateOptions options_of(std::uint8_t choice) {
    AggregateOptions options;
    options.slots = kSlots;
    options.hash_sequences = (choice & 1) != 0;
    options.pass_second_level_resends = (choice & 2) != 0;
    return options;
  }

  void operate() {
    const std::uint8_t code = input_.byte();
    switch (code & 7) {
      case 0:
      case 1:
      case 2:
        return gradient(honest(code), false);
      case 3:
        now_ += Duration::milliseconds(std::int64_t{1} << (input_.byte() % 12));
        return table_.sweep(now_, code >> 3);
      case 4:
        return parameter();
      case 5:
        return gradient(forged(), true);
      case 6:
        return update();
      default:
        if (code >> 3 == 7) table_.restart();
    }
  }

  // A worker's packet to the first level, or group 1's sum to the second.
  wire::AtpHeader honest(std::uint8_t code) {
    wire::AtpHeader header;
    header.job = 1 + (code >> 7);
    header.sequence = input_.byte() % 8;
    header.group_count = 2;
    header.elements = 4;
    header.resend = (code & 0x40) != 0;
    const unsigned who = (code >> 4) & 3;
    header.fan_in = kWorkers;
    if (who < kWorkers) {
      header.workers = wire::atp_bit(who);
    } else {
      header.level = wire::kAtpSecondLevel;
      header.group = 1;
      header.groups = 2;
    }
    return header;
  }

  wire::AtpHeader forged() {
    wire::AtpHeader header;
    do {
      header.job = input_.byte() % 4;
      header.level = input_.byte() % 3;
      header.sequence = input_.byte() % 8;
      header.workers = input_.byte() % 16;
      header.groups = input_.byte() % 4;
      header.group = input_.byte() % 2;
      header.fan_in = 1 + input_.byte() % 4;
      header.group_count = 1 + input_.byte() % 2;
      header.elements = 1 + input_.byte() % 80;
      header.resend = input_.byte() % 2 != 0;
      header.collision = input_.byte() % 2 != 0;
    } while (check_atp_header(header) != wire::WireError::kNone && !input_.empty());
    return header;
  }

  void gradient(wire::AtpHeader header, bool is_forged) {
    if (check_atp_header(header) != wire::WireError::kNone) return;
    if (is_forged && header.job < lied_.size()) lied_[header.job] = true;
    std::uint64_t value = counts_of(header);
    while (header.level < wire::kAtpServerLevel) {
      const wire::AtpHeader before = header;
      const AggregateAction action = table_.on_gradient(header, now_);
      CHECK(action.slot < kSlots);
      std::uint64_t& slot = slots_[action.slot];
      if (action.payload == AggregateAction::Payload::kStore) slot = value;
      if (action.payload == AggregateAction::Payload::kAdd) slot += value;
      if (action.emit == AggregateAction::Emit::kNothing) break;
      CHECK(check_atp_header(header) == wire::WireError::kNone, "emits {}", name_of(action.cause));
      if (action.emit == AggregateAction::Emit::kSum) value = slot;
      if (!lied_[header.job]) {
        CHECK(value == counts_of(header), "a wrong sum after {}", name_of(action.cause));
      }
      if (header.level == before.level) break;  // this switch does not aggregate it
    }
    check_counts();
  }

  void parameter() {
    wire::AtpHeader header;
    header.kind = wire::AtpKind::kParameter;
    header.job = input_.byte() % 3;
    header.sequence = input_.byte() % 8;
    header.groups = 1;
    header.elements = 4;
    (void)table_.on_parameter(header);
    check_counts();
  }

  void check_counts() {
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i) used += table_.in_use(i) ? 1 : 0;
    CHECK(used == table_.slots_in_use());
    CHECK(used == table_.counters(1)->slots + table_.counters(2)->slots);
    CHECK(table_.counters(2)->slots <= 2);
  }

  void update() {
    wire::AtpHeader header;
    header.kind = wire::AtpKind::kUpdate;
    header.job = input_.byte() % 4;
    header.sequence = input_.byte() % 16;
    header.fan_in = kWorkers;
    header.workers = 1 + input_.byte() % 7;
    header.elements = 1 + input_.byte() % 80;
    const std::uint64_t value = counts_of(header);
    const AggregateAction action = pool_.on_update(header);
    std::uint64_t& slot = pool_slots_[action.slot];
    if (action.payload == AggregateAction::Payload::kStore) slot = value;
    if (action.payload == AggregateAction::Payload::kAdd) slot += value;
    if (action.emit == AggregateAction::Emit::kNothing) return;
    CHECK(check_atp_header(header) == wire::WireError::kNone &&
          header.kind == wire::AtpKind::kResult);
    CHECK(slot == 0x111, "a wrong result");
  }

  Input input_;
  AggregateTable table_;
  sim::SwitchmlTable pool_;
  std::array<std::uint64_t, kSlots> slots_ = {};
  std::array<std::uint64_t, 4096> pool_slots_ = {};
  std::array<bool, 4> lied_ = {};  // whether a forged packet of the job has arrived
  Time now_;
};

}  // namespace
}  // namespace thalweg::switches

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 4096;
  thalweg::switches::Game(thalweg::Input(data, std::min(size, kMostBytes))).play();
  return 0;
}
