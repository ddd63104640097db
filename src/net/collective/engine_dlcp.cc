// Operations over DLCP: every chunk is a transfer of its own, and segments of it may be lost within
// the bound.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/collective/engine.h"
#include "tensor/tags.h"

namespace thalweg {
namespace {

std::uint64_t key_of(const Operation::State& op, std::uint32_t slot) {
  return std::uint64_t{op.number} << 32 | slot;
}

const Peer& peer_of(const Operation::State& op, Rank rank) {
  const auto place = std::ranges::lower_bound(op.plan->peers(), rank);
  return op.dlcp_peers[static_cast<std::size_t>(place - op.plan->peers().begin())];
}

double bound_of(const Operation::State& op, TransferKind kind) {
  return kind == TransferKind::kCopy ? op.dlcp->copy_bound : op.dlcp->reduce_bound;
}

// CallOptions::priority, which may be negative: the lowest is first.
std::uint32_t urgency_of(const Operation::State& op) {
  constexpr int kMost = 1 << 20;
  return static_cast<std::uint32_t>(std::clamp(op.priority, -kMost, kMost) + kMost);
}

// Of each segment on the wire: with loss, those of the larger elements are important. The first
// element of each is a count.
std::vector<SegmentTag> tags_of(const Operation::State& op, TensorView wire) {
  const std::int64_t each = op.dlcp->segment_elements;
  if (each == 0 || wire.elements == 0) return {};
  const auto size = static_cast<std::int64_t>(size_of(wire.type));
  const Result<Partition> partition =
      Partition::make(wire.elements, Bytes(size), Bytes(each * size));
  CHECK(partition.ok(), "{}", partition.error().message());
  std::vector<SegmentTag> tags(static_cast<std::size_t>(partition->segment_count()));
  MagnitudeTagger({.reference = MagnitudeReference::kSegmentMedian, .head = 1})
      .tag(wire.type, wire.data, *partition, op.dlcp->queue, tags);
  return tags;
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

void Engine::start_dlcp(const std::shared_ptr<Op>& op) {
  const auto& arrivals = op->plan->arrivals();
  for (std::uint32_t slot = 0; slot < arrivals.size(); ++slot) {
    const std::span<std::byte> wire = op->chunks->incoming(slot);
    const Result<Transfer> transfer =
        peer_of(*op, arrivals[slot].source)
            .recv(
                {wire.data(), static_cast<std::int64_t>(wire.size() / size_of(op->type)), op->type},
                {.key = key_of(*op, slot),
                 .loss_bound = bound_of(*op, arrivals[slot].kind),
                 .deadline = limit_of(*op)});
    if (!transfer.ok()) {
      on_dlcp_received(op, slot, transfer.error());
      return;
    }
    transfer->on_done([self = shared_from_this(), op, slot](const Result<TransferReport>& report) {
      self->on_dlcp_received(op, slot, report);
    });
    keep(op, *transfer);
  }
  Lock lock(mutex_);
  look_at_dlcp(op, lock);
}

// With the lock; without it afterwards.
void Engine::look_at_dlcp(const std::shared_ptr<Op>& op, Lock& lock) {
  std::vector<std::uint32_t> sends;
  if (!op->result) {
    std::uint32_t send = 0;
    while (op->chunks->poll_ready(send)) sends.push_back(send);
    if (op->chunks->done()) finish(*op, ok_status());
  }
  lock.unlock();
  send_dlcp(op, sends);
}

void Engine::send_dlcp(const std::shared_ptr<Op>& op, const std::vector<std::uint32_t>& sends) {
  for (const std::uint32_t send : sends) {
    const RankPlan::Send& s = op->plan->sends()[send];
    const std::span<const std::byte> bytes = op->chunks->outgoing(send);
    const TensorView wire{bytes.data(), static_cast<std::int64_t>(bytes.size() / size_of(op->type)),
                          op->type};
    SendOptions options{.key = key_of(*op, s.slot),
                        .loss_bound = bound_of(*op, s.kind),
                        .tag = {.priority = op->dlcp->queue},
                        .urgency = urgency_of(*op),
                        .deadline = limit_of(*op)};
    const std::vector<SegmentTag> tags = tags_of(*op, wire);
    if (!tags.empty()) {
      options.tag_of = [&, each = op->dlcp->segment_elements](std::int64_t first, std::int64_t) {
        const SegmentTag tag = tags[static_cast<std::size_t>(first / each)];
        return PacketTag{tag.priority, tag.important};
      };
    }
    const Result<Transfer> transfer = peer_of(*op, s.target).send(wire, options);
    if (!transfer.ok()) {
      on_dlcp_sent(op, send, transfer.error());
      return;
    }
    transfer->on_done([self = shared_from_this(), op, send](const Result<TransferReport>& report) {
      self->on_dlcp_sent(op, send, report);
    });
    keep(op, *transfer);
  }
}

void Engine::on_dlcp_received(const std::shared_ptr<Op>& op, std::uint32_t slot,
                              const Result<TransferReport>& report) {
  Lock lock(mutex_);
  if (op->result) return;
  const int source = op->plan->arrivals()[slot].source.value();
  if (!report.ok()) {
    fail(static_cast<std::uint32_t>(source),
         fmt::format("from rank {}: {}", source, report.error().message()));
    settle();
    return;
  }
  std::vector<ChunkExecutor::Lost> lost;
  for (const ElementRange& range : report->missing) lost.push_back({range.begin, range.end});
  op->chunks->arrived(slot, lost);
  look_at_dlcp(op, lock);
}

void Engine::on_dlcp_sent(const std::shared_ptr<Op>& op, std::uint32_t send,
                          const Result<TransferReport>& report) {
  Lock lock(mutex_);
  if (op->result) return;
  const int target = op->plan->sends()[send].target.value();
  if (!report.ok()) {
    fail(static_cast<std::uint32_t>(target),
         fmt::format("to rank {}: {}", target, report.error().message()));
    settle();
    return;
  }
  op->chunks->sent(send);
  look_at_dlcp(op, lock);
}

}  // namespace thalweg
