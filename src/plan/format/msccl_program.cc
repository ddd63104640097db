#include "plan/format/msccl_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace thalweg::plan {
namespace {

// The most MSCCL chunks that one step may carry (MSCCL_MAX_COUNT is 72, exclusive).
constexpr std::int64_t kMaxCount = 71;

// How many sends a connection takes before the receiver has taken any: NCCL's Simple protocol has 8
// steps per connection, and MSCCL uses 4 of them for a chunk.
constexpr std::size_t kConnectionSlots = 2;

// Where each chunk of the plan lies, counted in MSCCL's equal chunks ("slots").
struct Slots {
  std::vector<std::int64_t> first;  // per chunk, in the whole tensor (all-to-all: in the source's)
  std::vector<std::int64_t> count;  // per chunk
  std::int64_t total = 0;
  std::int64_t per_rank = 0;  // only for collectives in which each rank has a share
};

bool has_shares(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
         collective == Collective::kAllToAll;
}

Error uneven(std::int64_t shortest, std::int64_t longest) {
  return Error(fmt::format(
      "MSCCL needs chunks of equal length, or of multiples (up to {}) of one length, the same "
      "number in every rank's share; these have {} to {} elements",
      kMaxCount, shortest, longest));
}

// Takes one slot per chunk if the lengths differ by at most one element, else slots as long as the
// greatest common divisor of the lengths.
Result<Slots> cut_into_slots(const Plan& plan) {
  if (plan.chunks.empty()) return Error("MSCCL needs a tensor that is not empty");
  const auto [shortest_at, longest_at] =
      std::minmax_element(plan.chunks.begin(), plan.chunks.end(),
                          [](const Chunk& a, const Chunk& b) { return a.length < b.length; });
  const std::int64_t shortest = shortest_at->length;
  const std::int64_t longest = longest_at->length;
  const std::size_t chunks = plan.chunks.size();
  Slots slots{.first = std::vector<std::int64_t>(chunks),
              .count = std::vector<std::int64_t>(chunks, 1)};
  if (longest - shortest <= 1) {
    std::vector<std::size_t> order(chunks);
    std::iota(order.begin(), order.end(), 0);
    const std::int64_t layers = plan.collective == Collective::kAllToAll ? plan.ranks : 1;
    const auto position = [&](std::size_t i) {
      return std::pair(layers > 1 ? plan.chunks[i].source : Rank(), plan.chunks[i].offset);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return position(a) < position(b); });
    slots.total = static_cast<std::int64_t>(chunks) / layers;
    for (std::size_t i = 0; i < chunks; ++i) {
      slots.first[order[i]] = static_cast<std::int64_t>(i) % slots.total;
    }
  } else {
    std::int64_t unit = 0;
    for (const Chunk& chunk : plan.chunks) unit = std::gcd(unit, chunk.length);
    if (longest / unit > kMaxCount) return uneven(shortest, longest);
    slots.total = plan.elements / unit;
    for (std::size_t i = 0; i < chunks; ++i) {
      slots.first[i] = plan.chunks[i].offset / unit;
      slots.count[i] = plan.chunks[i].length / unit;
    }
  }
  if (!has_shares(plan.collective)) return slots;
  if (slots.total % plan.ranks != 0) return uneven(shortest, longest);
  slots.per_rank = slots.total / plan.ranks;
  for (std::size_t i = 0; i < chunks; ++i) {
    const Chunk& chunk = plan.chunks[i];
    const Rank owner = chunk.target.valid() ? chunk.target : chunk.source;
    if (slots.first[i] / slots.per_rank != owner.value()) return uneven(shortest, longest);
  }
  return slots;
}

// Builds the program in three passes: steps in plan order, then their waits, then their numbers.
class ProgramBuilder {
 public:
  ProgramBuilder(const Plan& plan, const Slots& slots)
      : plan_(plan), slots_(slots), buffers_(plan.chunks.size() * ranks()) {
    program_.chunks_per_loop = slots.total;
    const bool gathers = plan.collective == Collective::kAllGather;
    const bool scatters = plan.collective == Collective::kReduceScatter;
    program_.input_chunks = gathers ? slots.per_rank : slots.total;
    program_.output_chunks = scatters ? slots.per_rank : slots.total;
    program_.scratch_chunks.assign(ranks(), 0);
  }

  MscclProgram build() && {
    open_blocks();
    add_transfers();
    add_local_copies();
    add_waits();
    drop_implied_waits();
    return std::move(program_);
  }

 private:
  enum class Role : std::uint8_t { kSend, kReceive, kLocal };

  // One rank's buffer of one chunk.
  struct Buffer {
    bool receives = false;
    std::vector<MscclStepId> arrivals;
    std::vector<std::pair<std::int32_t, MscclStepId>> sends;  // with the version sent
    std::int64_t scratch = -1;  // offset in scratch, once it has one; -1 before
  };

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(plan_.ranks); }
  Buffer& buffer(Rank rank, ChunkIndex chunk) {
    return buffers_[chunk.index() * ranks() + rank.index()];
  }
  [[nodiscard]] bool contributes(Rank rank, const Chunk& chunk) const {
    return !chunk.source.valid() || chunk.source == rank;
  }
  [[nodiscard]] bool needs(Rank rank, const Chunk& chunk) const {
    return !chunk.target.valid() || chunk.target == rank;
  }

  MscclStepId append(Rank rank, Role role, int peer, MscclStep step) {
    const std::size_t block = block_at_.at({rank.value(), role, peer});
    auto& steps = program_.blocks[block].steps;
    steps.push_back(std::move(step));
    return {.block = block, .index = steps.size() - 1};
  }

  // Whether a rank has a chunk from the start, needs it and never receives it.
  bool copies_locally(Rank rank, ChunkIndex chunk) {
    const Chunk& c = plan_.chunks[chunk.index()];
    return contributes(rank, c) && needs(rank, c) && !buffer(rank, chunk).receives;
  }

  void open_blocks();
  void add_transfers();
  void add_local_copies();
  void add_waits();
  void drop_implied_waits();
  MscclPlace place(Rank rank, ChunkIndex chunk, std::int32_t version);

  const Plan& plan_;
  const Slots& slots_;
  std::vector<Buffer> buffers_;  // [chunk][rank]
  std::map<std::tuple<int, Role, int>, std::size_t> block_at_;
  MscclProgram program_;
};

void ProgramBuilder::open_blocks() {
  for (const PlanTransfer& t : plan_.transfers) {
    block_at_[{t.source.value(), Role::kSend, t.target.value()}];
    block_at_[{t.target.value(), Role::kReceive, t.source.value()}];
    buffer(t.target, t.chunk).receives = true;
  }
  for (Rank rank{0}; rank.value() < plan_.ranks; ++rank) {
    for (ChunkIndex chunk{0}; chunk.index() < plan_.chunks.size(); ++chunk) {
      if (copies_locally(rank, chunk)) block_at_[{rank.value(), Role::kLocal, -1}];
    }
  }
  for (auto& [key, index] : block_at_) {
    const auto [rank, role, peer] = key;
    index = program_.blocks.size();
    const bool first = program_.blocks.empty() || program_.blocks.back().rank != rank;
    program_.blocks.push_back({.rank = rank,
                               .send_peer = role == Role::kSend ? peer : -1,
                               .receive_peer = role == Role::kReceive ? peer : -1,
                               .id = first ? 0 : program_.blocks.back().id + 1,
                               .steps = {}});
  }
}

MscclPlace ProgramBuilder::place(Rank rank, ChunkIndex chunk, std::int32_t version) {
  const Chunk& c = plan_.chunks[chunk.index()];
  const std::int64_t slot = slots_.first[chunk.index()];
  if (version == 0) {
    const bool gathers = plan_.collective == Collective::kAllGather;
    return {MscclBuffer::kInput, gathers ? slot % slots_.per_rank : slot};
  }
  if (!needs(rank, c)) {
    Buffer& own = buffer(rank, chunk);
    if (own.scratch < 0) {
      own.scratch = program_.scratch_chunks[rank.index()];
      program_.scratch_chunks[rank.index()] += slots_.count[chunk.index()];
    }
    return {MscclBuffer::kScratch, own.scratch};
  }
  if (plan_.collective == Collective::kReduceScatter) {
    return {MscclBuffer::kOutput, slot % slots_.per_rank};
  }
  if (plan_.collective == Collective::kAllToAll) {
    return {MscclBuffer::kOutput, c.source.value() * slots_.per_rank + slot % slots_.per_rank};
  }
  return {MscclBuffer::kOutput, slot};
}

void ProgramBuilder::add_transfers() {
  for (const PlanTransfer& t : plan_.transfers) {
    const std::int64_t count = slots_.count[t.chunk.index()];
    Buffer& from = buffer(t.source, t.chunk);
    Buffer& to = buffer(t.target, t.chunk);
    const auto version = static_cast<std::int32_t>(to.arrivals.size());
    const MscclPlace sent = place(t.source, t.chunk, t.after);
    const MscclPlace before = place(t.target, t.chunk, version);
    const MscclPlace after = place(t.target, t.chunk, version + 1);
    // A value that is added to nothing is only received.
    const bool empty = version == 0 && !contributes(t.target, plan_.chunks[t.chunk.index()]);
    const bool adds = t.kind == TransferKind::kReduce && !empty;
    from.sends.emplace_back(t.after, append(t.source, Role::kSend, t.target.value(),
                                            {.type = MscclStepType::kSend,
                                             .source = sent,
                                             .target = after,
                                             .count = count,
                                             .waits_for = {}}));
    to.arrivals.push_back(
        append(t.target, Role::kReceive, t.source.value(),
               {.type = adds ? MscclStepType::kReceiveReduce : MscclStepType::kReceive,
                .source = adds ? before : sent,
                .target = after,
                .count = count,
                .waits_for = {}}));
  }
}

void ProgramBuilder::add_local_copies() {
  for (Rank rank{0}; rank.value() < plan_.ranks; ++rank) {
    for (ChunkIndex chunk{0}; chunk.index() < plan_.chunks.size(); ++chunk) {
      if (!copies_locally(rank, chunk)) continue;
      append(rank, Role::kLocal, -1,
             {.type = MscclStepType::kLocalCopy,
              .source = place(rank, chunk, 0),
              .target = place(rank, chunk, 1),
              .count = slots_.count[chunk.index()],
              .waits_for = {}});
    }
  }
}

void ProgramBuilder::add_waits() {
  const auto step = [this](MscclStepId id) -> MscclStep& {
    return program_.blocks[id.block].steps[id.index];
  };
  for (const Buffer& buffer : buffers_) {
    for (std::size_t v = 1; v < buffer.arrivals.size(); ++v) {
      step(buffer.arrivals[v]).waits_for.push_back(buffer.arrivals[v - 1]);
    }
    for (const auto& [version, send] : buffer.sends) {
      const auto v = static_cast<std::size_t>(version);
      CHECK(v <= buffer.arrivals.size(), "version {} of {}", v, buffer.arrivals.size());
      if (v > 0) step(send).waits_for.push_back(buffer.arrivals[v - 1]);
      if (v < buffer.arrivals.size()) step(buffer.arrivals[v]).waits_for.push_back(send);
    }
  }
}

// A thread block runs in order, so waiting for one of its steps means waiting for all steps before
// it. Among several waits for one block only the last counts, and only if no earlier step has
// waited for it. A wait for an earlier step of the same block is dropped; a wait for a later one
// never ends, and is kept for the check that follows.
void ProgramBuilder::drop_implied_waits() {
  for (std::size_t b = 0; b < program_.blocks.size(); ++b) {
    std::map<std::size_t, std::size_t> waited;  // per block: how many steps are known to be done
    int number = 0;
    auto& steps = program_.blocks[b].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::map<std::size_t, std::size_t> wanted;
      for (const MscclStepId id : steps[i].waits_for) {
        if (id.block == b && id.index < i) continue;
        wanted[id.block] = std::max(wanted[id.block], id.index + 1);
      }
      steps[i].waits_for.clear();
      for (const auto& [block, done] : wanted) {
        if (done <= waited[block]) continue;
        waited[block] = done;
        steps[i].waits_for.push_back({.block = block, .index = done - 1});
        program_.blocks[block].steps[done - 1].awaited = true;
      }
      if (!steps[i].waits_for.empty()) number += static_cast<int>(steps[i].waits_for.size()) - 1;
      steps[i].number = number++;
    }
  }
}

// Runs the program without data, every thread block as far as it goes. A step never undoes what
// another waits for, so what is stuck in this order is stuck in every order.
class ProgressCheck {
 public:
  explicit ProgressCheck(const MscclProgram& program)
      : blocks_(program.blocks), done_(blocks_.size()), waiters_(blocks_.size()) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const MscclBlock& block = blocks_[b];
      if (block.receive_peer >= 0) receiver_[{block.receive_peer, block.rank}] = b;
      if (block.send_peer >= 0) sender_[{block.rank, block.send_peer}] = b;
    }
  }

  Status run() {
    for (std::size_t b = 0; b < blocks_.size(); ++b) ready_.push_back(b);
    while (!ready_.empty()) {
      const std::size_t b = ready_.front();
      ready_.pop_front();
      const std::size_t before = done_[b];
      while (done_[b] < blocks_[b].steps.size()) {
        if (const auto blocker = blocked_by(b)) {
          waiters_[*blocker].push_back(b);
          break;
        }
        ++done_[b];
      }
      if (done_[b] == before) continue;
      for (const std::size_t waiter : waiters_[b]) ready_.push_back(waiter);
      waiters_[b].clear();
    }
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (done_[b] == blocks_[b].steps.size()) continue;
      return Error(fmt::format(
          "as one thread block a connection, rank {} waits forever to {} rank {}: the plan's order "
          "of transfers does not suit MSCCL",
          blocks_[b].rank, blocks_[b].send_peer >= 0 ? "send to" : "receive from",
          std::max(blocks_[b].send_peer, blocks_[b].receive_peer)));
    }
    return ok_status();
  }

 private:
  // The block that must advance before the next step of block b can run; empty if the step can run.
  [[nodiscard]] std::optional<std::size_t> blocked_by(std::size_t b) const {
    const MscclBlock& block = blocks_[b];
    for (const MscclStepId wait : block.steps[done_[b]].waits_for) {
      if (done_[wait.block] <= wait.index) return wait.block;
    }
    if (block.send_peer >= 0) {
      const std::size_t receiver = receiver_.at({block.rank, block.send_peer});
      if (done_[b] >= done_[receiver] + kConnectionSlots) return receiver;
    }
    if (block.receive_peer >= 0) {
      const std::size_t sender = sender_.at({block.receive_peer, block.rank});
      if (done_[sender] <= done_[b]) return sender;
    }
    return std::nullopt;
  }

  const std::vector<MscclBlock>& blocks_;
  std::vector<std::size_t> done_;  // [block]: steps done
  std::vector<std::vector<std::size_t>> waiters_;
  std::deque<std::size_t> ready_;
  std::map<std::pair<int, int>, std::size_t> sender_;    // by (from, to)
  std::map<std::pair<int, int>, std::size_t> receiver_;  // by (from, to)
};

}  // namespace

Result<MscclProgram> msccl_program(const Plan& plan) {
  if (plan.contributors < plan.ranks) {
    return Error(fmt::format("MSCCL has no ranks that only help: of {} ranks {} contribute",
                             plan.ranks, plan.contributors));
  }
  THALWEG_TRY(const Slots slots, cut_into_slots(plan));
  MscclProgram program = ProgramBuilder(plan, slots).build();
  THALWEG_TRY_STATUS(ProgressCheck(program).run());
  return program;
}

}  // namespace thalweg::plan
