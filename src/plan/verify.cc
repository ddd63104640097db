// Chunks are independent, so each is executed on its own, over the ranks that take part in it,
// renumbered from 0. Beside its contributions, every value carries its causes: for each rank the
// latest version of that rank's buffer without which the value could not exist. The causes tell
// which arrivals can be early, and so how much a rank may have to stage.
#include "plan/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "plan/buckets.h"

namespace thalweg::plan {
namespace {

using Word = std::uint64_t;
constexpr std::size_t kWordBits = 64;

// What one version of a buffer is made of.
struct Value {
  bool empty = true;
  int depth = 0;                      // transfers on the longest chain that led here
  std::vector<Word> contributions;    // bit i: local rank i
  std::vector<std::uint16_t> causes;  // [local rank]: version of its buffer needed
};

// A transfer within its chunk, in local rank numbers.
struct AppliedTransfer {
  std::uint32_t transfer = 0;  // index in the plan
  std::uint32_t source = 0;
  std::uint32_t target = 0;
  std::uint32_t arrival = 0;  // the number of this arrival at the target, from 1
  std::uint32_t value = kNoValue;

  static constexpr std::uint32_t kNoValue = ~std::uint32_t{0};
};

// One rank's buffer of a chunk.
struct Buffer {
  Rank rank;
  std::uint32_t version = 0;
  Value now;
  std::vector<std::uint32_t> arrivals;  // moves, in the order they are applied
  std::vector<std::uint32_t> sends;     // moves, by the version they carry
  std::size_t next_send = 0;
};

// The symbolic execution of one chunk. The object is reused from chunk to chunk.
class ChunkRun {
 public:
  ChunkRun(const Plan& plan, PlanProof& proof)
      : plan_(plan), proof_(proof), local_(static_cast<std::size_t>(plan.ranks), kAbsent) {}

  // `transfers` are the indices of this chunk's transfers in plan order.
  Status run(ChunkIndex chunk, std::span<const std::uint32_t> transfers) {
    set_up(chunk, transfers);
    for (std::uint32_t b = 0; b < used_; ++b) {
      if (std::string problem = send_from(b); !problem.empty()) return fail(problem);
    }
    for (const AppliedTransfer& move : moves_) {
      if (move.value == AppliedTransfer::kNoValue) return fail(never_happens(move));
      if (std::string problem = apply(move); !problem.empty()) return fail(problem);
      if (std::string problem = send_from(move.target); !problem.empty()) return fail(problem);
    }
    if (std::string problem = wrong_result(); !problem.empty()) return fail(problem);
    count_staging();
    for (const AppliedTransfer& move : moves_)
      local_[plan_.transfers[move.transfer].target.index()] = kAbsent;
    for (const AppliedTransfer& move : moves_)
      local_[plan_.transfers[move.transfer].source.index()] = kAbsent;
    return ok_status();
  }

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  [[nodiscard]] Error fail(const std::string& problem) const {
    return Error(fmt::format("chunk {}: {}", chunk_.value(), problem));
  }
  [[nodiscard]] std::string describe(const AppliedTransfer& move) const {
    const PlanTransfer& t = plan_.transfers[move.transfer];
    return fmt::format("transfer {} ({} → {})", move.transfer, t.source.value(), t.target.value());
  }
  [[nodiscard]] bool contributes(Rank rank) const {
    const Rank source = plan_.chunks[chunk_.index()].source;
    return source.valid() ? rank == source : rank.value() < plan_.contributors;
  }

  std::uint32_t local(Rank rank) {
    std::uint32_t& id = local_[rank.index()];
    if (id == kAbsent) {
      id = used_++;
      if (buffers_.size() < used_) buffers_.emplace_back();
      Buffer& buffer = buffers_[id];
      buffer.rank = rank;
      buffer.version = 0;
      buffer.arrivals.clear();
      buffer.sends.clear();
      buffer.next_send = 0;
    }
    return id;
  }

  void set_up(ChunkIndex chunk, std::span<const std::uint32_t> transfers) {
    chunk_ = chunk;
    used_ = 0;
    values_used_ = 0;
    moves_.clear();
    for (const std::uint32_t index : transfers) {
      const PlanTransfer& t = plan_.transfers[index];
      const std::uint32_t source = local(t.source);
      const std::uint32_t target = local(t.target);
      const auto move = static_cast<std::uint32_t>(moves_.size());
      buffers_[source].sends.push_back(move);
      buffers_[target].arrivals.push_back(move);
      moves_.push_back({.transfer = index,
                        .source = source,
                        .target = target,
                        .arrival = static_cast<std::uint32_t>(buffers_[target].arrivals.size())});
    }
    for (std::uint32_t b = 0; b < used_; ++b) {
      Buffer& buffer = buffers_[b];
      std::stable_sort(buffer.sends.begin(), buffer.sends.end(),
                       [&](auto x, auto y) { return after(moves_[x]) < after(moves_[y]); });
      buffer.now.empty = !contributes(buffer.rank);
      buffer.now.depth = 0;
      buffer.now.contributions.assign((used_ + kWordBits - 1) / kWordBits, 0);
      buffer.now.causes.assign(used_, 0);
      if (!buffer.now.empty) {
        buffer.now.contributions[b / kWordBits] |= Word{1} << (b % kWordBits);
      }
    }
  }

  [[nodiscard]] std::uint32_t after(const AppliedTransfer& move) const {
    return static_cast<std::uint32_t>(plan_.transfers[move.transfer].after);
  }

  // Gives the current version of a buffer to the moves that carry it. Returns the problem, if any.
  std::string send_from(std::uint32_t b) {
    Buffer& buffer = buffers_[b];
    std::uint32_t value = AppliedTransfer::kNoValue;
    for (; buffer.next_send < buffer.sends.size(); ++buffer.next_send) {
      AppliedTransfer& move = moves_[buffer.sends[buffer.next_send]];
      if (after(move) != buffer.version) break;
      if (buffer.now.empty) {
        return fmt::format("{} carries nothing: rank {} holds no value at version {}",
                           describe(move), buffer.rank.value(), buffer.version);
      }
      if (value == AppliedTransfer::kNoValue) {
        value = values_used_++;
        if (values_.size() < values_used_) values_.emplace_back();
        values_[value] = buffer.now;
        values_[value].causes[b] = static_cast<std::uint16_t>(buffer.version);
      }
      move.value = value;
    }
    return {};
  }

  // Makes the next version of the target's buffer. Returns the problem, if any.
  std::string apply(const AppliedTransfer& move) {
    Buffer& buffer = buffers_[move.target];
    const Value& value = values_[move.value];
    const bool replace =
        plan_.transfers[move.transfer].kind == TransferKind::kCopy || buffer.now.empty;
    if (replace) {
      if (!buffer.now.empty && buffer.now.contributions == value.contributions) {
        return fmt::format("{} brings nothing that rank {} does not hold already", describe(move),
                           buffer.rank.value());
      }
      buffer.now.contributions = value.contributions;
    } else {
      for (std::size_t w = 0; w < value.contributions.size(); ++w) {
        const Word twice = buffer.now.contributions[w] & value.contributions[w];
        if (twice != 0) {
          const std::size_t who = w * kWordBits + static_cast<std::size_t>(std::countr_zero(twice));
          return fmt::format("{} adds the contribution of rank {} a second time", describe(move),
                             buffers_[who].rank.value());
        }
        buffer.now.contributions[w] |= value.contributions[w];
      }
    }
    ++buffer.version;
    buffer.now.empty = false;
    proof_.step_of[move.transfer] = value.depth + 1;
    buffer.now.depth = std::max(buffer.now.depth, value.depth + 1);
    proof_.steps = std::max(proof_.steps, buffer.now.depth);
    std::uint16_t* causes = buffer.now.causes.data();
    const std::uint16_t* more = value.causes.data();
    for (std::size_t i = 0; i < used_; ++i) causes[i] = std::max(causes[i], more[i]);
    return {};
  }

  [[nodiscard]] std::string never_happens(const AppliedTransfer& move) const {
    return fmt::format(
        "{} waits for version {} of rank {}, which stands at version {} when the transfers before "
        "it in the plan are done",
        describe(move), after(move), buffers_[move.source].rank.value(),
        buffers_[move.source].version);
  }

  // Sets `wanted` to the ranks whose contributions `rank` must end with; returns false if it needs
  // none.
  [[nodiscard]] bool wants(Rank rank, std::vector<Rank>& wanted) const {
    const Chunk& chunk = plan_.chunks[chunk_.index()];
    wanted.clear();
    if (rank.value() >= plan_.contributors) return false;
    if (chunk.target.valid() && rank != chunk.target) return false;
    if (chunk.source.valid()) {
      wanted.push_back(chunk.source);
    } else if (plan_.collective == Collective::kMix) {
      wanted = plan_.mixes[rank.index()];
    } else {
      for (int r = 0; r < plan_.contributors; ++r) wanted.emplace_back(r);
    }
    return true;
  }

  [[nodiscard]] std::string wrong_result() {
    const Rank only = plan_.chunks[chunk_.index()].target;
    if (only.valid()) return wrong_result_at(only);
    const bool same_for_all = plan_.collective != Collective::kMix;
    const Buffer* checked = nullptr;
    for (int r = 0; r < plan_.contributors; ++r) {
      // Most ranks end with the same set, so compare with the last one that was right.
      const std::uint32_t id = local_[static_cast<std::size_t>(r)];
      const Buffer* buffer = id == kAbsent ? nullptr : &buffers_[id];
      if (same_for_all && checked != nullptr && buffer != nullptr && !buffer->now.empty &&
          buffer->now.contributions == checked->now.contributions) {
        continue;
      }
      if (std::string problem = wrong_result_at(Rank(r)); !problem.empty()) return problem;
      checked = buffer;
    }
    return {};
  }

  [[nodiscard]] std::string wrong_result_at(Rank rank) {
    if (!wants(rank, wanted_)) return {};
    const std::uint32_t id = local_[rank.index()];
    const auto ends_with = [&](Rank who) {
      if (id == kAbsent) return who == rank && contributes(rank);
      const std::uint32_t bit = local_[who.index()];
      return bit != kAbsent && !buffers_[id].now.empty &&
             (buffers_[id].now.contributions[bit / kWordBits] >> (bit % kWordBits) & 1) != 0;
    };
    for (const Rank who : wanted_) {
      if (!ends_with(who)) {
        return fmt::format("rank {} ends without the contribution of rank {}", rank.value(),
                           who.value());
      }
    }
    if (id == kAbsent) return {};
    int held = 0;
    for (const Word word : buffers_[id].now.contributions) held += std::popcount(word);
    if (held != static_cast<int>(wanted_.size())) {
      for (std::uint32_t b = 0; b < used_; ++b) {
        const Rank who = buffers_[b].rank;
        if (ends_with(who) && std::find(wanted_.begin(), wanted_.end(), who) == wanted_.end()) {
          return fmt::format("rank {} ends with the contribution of rank {}, which is not wanted",
                             rank.value(), who.value());
        }
      }
    }
    return {};
  }

  // Arrival j (from 1) can come once its causes at this rank, version q, exist; it is applied when
  // the buffer is at version j−1. It is held at versions q … j−2, and at j−1 too if a send of an
  // older version may still be reading the buffer.
  void count_staging() {
    for (std::uint32_t b = 0; b < used_; ++b) {
      const Buffer& buffer = buffers_[b];
      if (buffer.arrivals.empty()) continue;
      held_.assign(buffer.arrivals.size() + 1, 0);
      for (const std::uint32_t m : buffer.arrivals) {
        const AppliedTransfer& move = moves_[m];
        const std::uint32_t since = values_[move.value].causes[b];
        const std::uint32_t until = move.arrival - (may_be_read(buffer, move) ? 0 : 1);
        if (since < until) {
          ++held_[since];
          --held_[until];
        }
      }
      int now = 0;
      int most = 0;
      for (const int change : held_) most = std::max(most, now += change);
      proof_.staging[buffer.rank.index()] += plan_.size_of(chunk_) * most;
    }
  }

  // Whether an earlier send of the same buffer may still be under way when `arrival` comes: one
  // whose delivery is not among the causes of the arrival.
  [[nodiscard]] bool may_be_read(const Buffer& buffer, const AppliedTransfer& arrival) const {
    for (const std::uint32_t m : buffer.sends) {
      const AppliedTransfer& send = moves_[m];
      if (after(send) >= arrival.arrival) break;
      if (values_[arrival.value].causes[send.target] < send.arrival) return true;
    }
    return false;
  }

  const Plan& plan_;
  PlanProof& proof_;
  std::vector<std::uint32_t> local_;  // [rank] → local number
  ChunkIndex chunk_;
  std::uint32_t used_ = 0;  // buffers in use
  std::vector<Buffer> buffers_;
  std::uint32_t values_used_ = 0;
  std::vector<Value> values_;
  std::vector<AppliedTransfer> moves_;
  std::vector<Rank> wanted_;
  std::vector<int> held_;
};

}  // namespace

Bytes PlanProof::peak_staging() const {
  return staging.empty() ? Bytes(0) : *std::max_element(staging.begin(), staging.end());
}

Result<PlanProof> verify(const Plan& plan) {
  THALWEG_TRY_STATUS(check_shape(plan));
  const Buckets by_chunk(plan.transfers.size(), plan.chunks.size(),
                         [&](std::uint32_t i) { return plan.transfers[i].chunk.index(); });
  PlanProof proof;
  proof.step_of.resize(plan.transfers.size());
  proof.staging.resize(static_cast<std::size_t>(plan.ranks));
  ChunkRun run(plan, proof);
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    THALWEG_TRY_STATUS(run.run(ChunkIndex(static_cast<std::int32_t>(c)), by_chunk[c]));
  }
  return proof;
}

}  // namespace thalweg::plan
