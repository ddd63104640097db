// Operations over DLCP: every chunk is one transfer, or one per way if there are several ways, and
// may lose segments within the bound.
#include <fmt/core.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "net/group/drive/engine.h"
#include "net/io/system.h"
#include "tensor/tags.h"

namespace thalweg::net {
namespace {

std::uint64_t key_of(const Operation::State& op, std::uint32_t slot) {
  return std::uint64_t{op.number} << 32 | slot;
}

// With all headers it fits the 1280 bytes that every path of IPv6 must carry.
constexpr std::size_t kPayloadThatPasses = 1152;

const std::vector<Peer>& ways_to(const Operation::State& op, Rank rank) {
  const auto place = std::ranges::lower_bound(op.plan->peers(), rank);
  return op.dlcp_peers[static_cast<std::size_t>(place - op.plan->peers().begin())];
}

double bound_of(const Operation::State& op, plan::TransferKind kind) {
  return kind == plan::TransferKind::kCopy ? op.dlcp->copy_bound : op.dlcp->reduce_bound;
}

// Maps CallOptions::priority, which may be negative, to an urgency. The lowest comes first.
std::uint32_t urgency_of(const Operation::State& op) {
  constexpr int kMost = 1 << 20;
  return static_cast<std::uint32_t>(std::clamp(op.priority, -kMost, kMost) + kMost);
}

// The tag of each segment on the wire. With loss, segments with larger elements are important. The
// first element of each segment is a count.
std::vector<SegmentTag> tags_of(const Operation::State& op, TensorView wire) {
  const std::int64_t each = op.dlcp->segment_elements;
  if (each == 0 || wire.elements == 0) return {};
  const auto size = static_cast<std::int64_t>(size_of(wire.type));
  const Result<tensor::Partition> partition =
      tensor::Partition::make(wire.elements, Bytes(size), Bytes(each * size));
  CHECK(partition.ok(), "{}", partition.error().message());
  std::vector<SegmentTag> tags(static_cast<std::size_t>(partition->segment_count()));
  tensor::MagnitudeTagger({.reference = tensor::MagnitudeReference::kSegmentMedian, .head = 1})
      .tag(wire.type, wire.data, *partition, op.dlcp->queue, tags);
  return tags;
}

std::int64_t elements_in(const Operation::State& op, std::span<const std::byte> wire) {
  return static_cast<std::int64_t>(wire.size() / size_of(op.type));
}

// All parts of a chunk but the last are multiples of this many elements: of a segment, with loss.
// Both ends compute the same.
std::int64_t unit_of(const Operation::State& op) {
  constexpr std::size_t kBytes = std::size_t{16} << 10;
  if (op.dlcp->segment_elements > 0) return op.dlcp->segment_elements;
  return static_cast<std::int64_t>(kBytes / size_of(op.type));
}

// The part of a chunk that goes one way to a rank.
struct Part {
  std::size_t way;
  std::int64_t first;
  std::int64_t elements;
};
// Divides a chunk into equal parts, one per way. Each part is a transfer with the chunk's bound. A
// small chunk stays in one piece, and these take the ways in turn. Both ends compute the same.
std::vector<Part> parts_of(std::int64_t elements, std::int64_t unit, std::size_t ways,
                           std::uint32_t slot) {
  constexpr std::int64_t kLeastUnits = 4;
  const std::int64_t units = (elements + unit - 1) / unit;
  const auto count = static_cast<std::int64_t>(ways);
  if (units < kLeastUnits * count) return {{slot % ways, 0, elements}};
  std::vector<Part> parts;
  for (std::int64_t way = 0; way < count; ++way) {
    const std::int64_t first = units * way / count * unit;
    const std::int64_t end = std::min(units * (way + 1) / count * unit, elements);
    parts.push_back({static_cast<std::size_t>(way), first, end - first});
  }
  return parts;
}

std::chrono::nanoseconds limit_of(const Operation::State& op) {
  return std::chrono::nanoseconds(op.limit.ps() / 1000);
}

}  // namespace

void Engine::keep(const std::shared_ptr<Op>& op, const Transfer& transfer) {
  const Lock lock(mutex_);
  if (op->result) {
    transfer.cancel();
  } else {
    op->transfers.push_back(transfer);
  }
}

void Engine::expect_parts(Op& op) {
  op.arriving.resize(op.plan->arrivals().size());
  op.leaving.resize(op.plan->sends().size());
  for (std::uint32_t slot = 0; slot < op.arriving.size(); ++slot) {
    const std::size_t ways = ways_to(op, op.plan->arrivals()[slot].source).size();
    op.arriving[slot].left =
        parts_of(elements_in(op, op.chunks->incoming(slot)), unit_of(op), ways, slot).size();
  }
}

void Engine::start_dlcp(const std::shared_ptr<Op>& op) {
  const auto& arrivals = op->plan->arrivals();
  for (std::uint32_t slot = 0; slot < arrivals.size(); ++slot) {
    const std::span<std::byte> wire = op->chunks->incoming(slot);
    const std::vector<Peer>& ways = ways_to(*op, arrivals[slot].source);
    for (const Part& part : parts_of(elements_in(*op, wire), unit_of(*op), ways.size(), slot)) {
      const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(op->type);
      const Result<Transfer> transfer =
          ways[part.way].recv({wire.data() + offset, part.elements, op->type},
                              {.key = key_of(*op, slot),
                               .loss_bound = bound_of(*op, arrivals[slot].kind),
                               .deadline = limit_of(*op)});
      if (!transfer.ok()) {
        on_dlcp_received(op, slot, part.first, transfer.error());
        return;
      }
      transfer->on_done([self = shared_from_this(), op, slot,
                         first = part.first](const Result<TransferReport>& report) {
        self->on_dlcp_received(op, slot, first, report);
      });
      keep(op, *transfer);
    }
  }
  Lock lock(mutex_);
  look_at_dlcp(op, lock);
}

// Requires the lock, and releases it.
void Engine::look_at_dlcp(const std::shared_ptr<Op>& op, Lock& lock) {
  std::vector<std::uint32_t> sends;
  if (!op->result) {
    std::uint32_t send = 0;
    while (op->chunks->poll_ready(send)) {
      sends.push_back(send);
      const exec::RankPlan::Send& s = op->plan->sends()[send];
      op->leaving[send].left = parts_of(elements_in(*op, op->chunks->outgoing(send)), unit_of(*op),
                                        ways_to(*op, s.target).size(), s.slot)
                                   .size();
    }
    if (op->chunks->done()) {
      core_.finish(*op);
      end_over();
    }
  }
  lock.unlock();
  send_dlcp(op, sends);
}

void Engine::send_dlcp(const std::shared_ptr<Op>& op, const std::vector<std::uint32_t>& sends) {
  for (const std::uint32_t send : sends) {
    const exec::RankPlan::Send& s = op->plan->sends()[send];
    const std::span<const std::byte> bytes = op->chunks->outgoing(send);
    const TensorView wire{bytes.data(), elements_in(*op, bytes), op->type};
    SendOptions options{.key = key_of(*op, s.slot),
                        .loss_bound = bound_of(*op, s.kind),
                        .tag = {.priority = op->dlcp->queue},
                        .urgency = urgency_of(*op),
                        .deadline = limit_of(*op)};
    const std::vector<SegmentTag> tags = tags_of(*op, wire);
    const std::vector<Peer>& ways = ways_to(*op, s.target);
    for (const Part& part : parts_of(wire.elements, unit_of(*op), ways.size(), s.slot)) {
      if (!tags.empty()) {
        options.tag_of = [&tags, each = op->dlcp->segment_elements, part](std::int64_t first,
                                                                          std::int64_t) {
          const SegmentTag tag = tags[static_cast<std::size_t>((part.first + first) / each)];
          return PacketTag{tag.priority, tag.important};
        };
      }
      const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(op->type);
      const Result<Transfer> transfer =
          ways[part.way].send({bytes.data() + offset, part.elements, op->type}, options);
      if (!transfer.ok()) {
        on_dlcp_sent(op, send, transfer.error());
        return;
      }
      transfer->on_done(
          [self = shared_from_this(), op, send](const Result<TransferReport>& report) {
            self->on_dlcp_sent(op, send, report);
          });
      keep(op, *transfer);
    }
  }
}

void Engine::lose_transfer(Op& op, const Error& error, const char* way, Rank rank) {
  core_.on_lost(op, rank, error.within(fmt::format("{} rank {}", way, rank.value())),
                monotonic_now());
  eventfd_write(wake_.get(), 1);
  nudge();
  settle();
}

void Engine::on_dlcp_received(const std::shared_ptr<Op>& op, std::uint32_t slot, std::int64_t first,
                              const Result<TransferReport>& report) {
  Lock lock(mutex_);
  if (op->result) return;
  if (!report.ok()) {
    lose_transfer(*op, report.error(), "from", op->plan->arrivals()[slot].source);
    return;
  }
  if (op->notes) note_transfer(*op, false, slot, *report);
  Op::Parts& parts = op->arriving[slot];
  for (const ElementRange& range : report->missing) {
    parts.lost.push_back({first + range.begin, first + range.end});
  }
  if (--parts.left > 0) return;
  std::ranges::sort(parts.lost, {}, &exec::ChunkExecutor::Lost::begin);
  op->chunks->arrived(slot, parts.lost);
  look_at_dlcp(op, lock);
}

void Engine::on_dlcp_sent(const std::shared_ptr<Op>& op, std::uint32_t send,
                          const Result<TransferReport>& report) {
  Lock lock(mutex_);
  if (op->result) return;
  if (!report.ok()) {
    lose_transfer(*op, report.error(), "to", op->plan->sends()[send].target);
    return;
  }
  if (op->notes) note_transfer(*op, true, send, *report);
  if (--op->leaving[send].left > 0) return;
  op->chunks->sent(send);
  look_at_dlcp(op, lock);
}

}  // namespace thalweg::net

namespace thalweg {

std::string Operation::State::obstacle(Rank rank) const {
  if (!dlcp || !plan) return {};
  const std::vector<Peer>& ways = net::ways_to(*this, rank);
  const auto vanishes = std::ranges::find_if(ways, &Peer::data_vanishes);
  if (vanishes == ways.end()) return {};
  return fmt::format(
      "packets with {} bytes of data from rank {} do not arrive, though its signals do: if the "
      "path drops large packets, set THALWEG_DLCP_PAYLOAD={} on all ranks",
      vanishes->packet_payload(), rank.value(), net::kPayloadThatPasses);
}

}  // namespace thalweg
