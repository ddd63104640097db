// Operations over DLCP: every chunk is one transfer, or one per way if there are several ways, and
// may lose segments within the bound. Segments are forwarded as they arrive
// (exec::SegmentExecutor).
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

// Tags the packets of every buffer, if some may be lost: those with larger elements of this rank's
// own contribution are important. The sums that it forwards are tagged alike, because a packet
// leaves before the rest of its chunk is known.
void tag_buffers(Operation::State& op) {
  const exec::SegmentExecutor::Layout& layout = op.dlcp->layout;
  if (!layout.counted) return;
  tensor::MagnitudeTagger tagger({.reference = tensor::MagnitudeReference::kSegmentMedian});
  const auto size = static_cast<std::int64_t>(size_of(op.type));
  op.tags.resize(op.plan->buffers().size());
  for (std::uint32_t b = 0; b < op.tags.size(); ++b) {
    const Result<tensor::Partition> partition =
        tensor::Partition::make(static_cast<std::int64_t>(op.plan->buffers()[b].bytes) / size,
                                Bytes(size), Bytes((layout.segment_elements - 1) * size));
    CHECK(partition.ok(), "{}", partition.error().message());
    op.tags[b].resize(static_cast<std::size_t>(partition->segment_count()));
    tagger.tag(op.type, op.memory[b], *partition, op.dlcp->queue, op.tags[b]);
  }
}

// All parts of a chunk but the last are multiples of this many elements, those of a packet. Both
// ends compute the same.
std::int64_t unit_of(const Operation::State& op, const std::vector<Peer>& ways) {
  const Peer& least = *std::ranges::min_element(ways, {}, &Peer::packet_payload);
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(least.packet_payload() / size_of(op.type)));
}

// The part of a chunk that goes one way to a rank.
struct Part {
  std::size_t way;
  std::int64_t first;
  std::int64_t elements;
};
// Divides a chunk into equal parts, one per way. Each part is a transfer with the chunk's bound. A
// small chunk stays in one piece, and these take the ways in turn. Both ends compute the same.
std::vector<Part> parts_of(const Operation::State& op, std::uint32_t buffer,
                           const std::vector<Peer>& ways, std::uint32_t slot) {
  constexpr std::int64_t kLeastUnits = 32;
  const std::int64_t elements = op.chunks->wire_elements(buffer);
  const std::int64_t unit = unit_of(op, ways);
  const std::int64_t units = (elements + unit - 1) / unit;
  const auto count = static_cast<std::int64_t>(ways.size());
  if (units < kLeastUnits * count) return {{slot % ways.size(), 0, elements}};
  std::vector<Part> parts;
  for (std::int64_t way = 0; way < count; ++way) {
    const std::int64_t first = units * way / count * unit;
    const std::int64_t end = std::min(units * (way + 1) / count * unit, elements);
    parts.push_back({static_cast<std::size_t>(way), first, end - first});
  }
  return parts;
}

// The packets of a chunk that hold some of these elements of a part. Requires whole packets.
exec::SegmentRun packets_of(const Operation::State& op, const Part& part, ElementRange range) {
  const std::int64_t each = op.dlcp->layout.segment_elements;
  return {static_cast<std::uint32_t>((part.first + range.begin) / each),
          static_cast<std::uint32_t>((part.first + range.end + each - 1) / each)};
}

// The elements of a part that these packets of its chunk hold; none if they are of other parts.
ElementRange elements_of(const Operation::State& op, const Part& part, exec::SegmentRun packets) {
  const std::int64_t each = op.dlcp->layout.segment_elements;
  const auto inside = [&](std::int64_t segment) {
    return std::clamp(std::min(segment * each, part.first + part.elements) - part.first,
                      std::int64_t{0}, part.elements);
  };
  return {inside(packets.begin), inside(packets.end)};
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
  op.leaving.resize(op.plan->sends().size());
  const auto& arrivals = op.plan->arrivals();
  for (std::uint32_t slot = 0; slot < arrivals.size(); ++slot) {
    const std::vector<Peer>& ways = ways_to(op, arrivals[slot].source);
    op.arriving.push_back(parts_of(op, arrivals[slot].buffer, ways, slot).size());
  }
}

void Engine::start_dlcp(const std::shared_ptr<Op>& op) {
  tag_buffers(*op);  // before anything can arrive
  const auto& arrivals = op->plan->arrivals();
  for (std::uint32_t slot = 0; slot < arrivals.size(); ++slot) {
    const std::span<std::byte> wire = op->chunks->incoming(slot);
    const std::vector<Peer>& ways = ways_to(*op, arrivals[slot].source);
    for (const Part& part : parts_of(*op, arrivals[slot].buffer, ways, slot)) {
      const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(op->type);
      RecvOptions options{.key = key_of(*op, slot),
                          .loss_bound = bound_of(*op, arrivals[slot].kind),
                          .deadline = limit_of(*op)};
      if (op->dlcp->layout.segment_elements < kWholeChunks) {
        options.on_arrival = [self = shared_from_this(), op, slot,
                              part](std::span<const ElementRange> ranges) {
          Lock lock(self->mutex_);
          if (op->result) return;
          for (const ElementRange& range : ranges) {
            op->chunks->arrived(slot, packets_of(*op, part, range));
          }
          self->look_at_dlcp(op, lock);
        };
      }
      const Result<Transfer> transfer =
          ways[part.way].recv({wire.data() + offset, part.elements, op->type}, options);
      if (!transfer.ok()) {
        on_dlcp_received(op, slot, transfer.error());
        return;
      }
      transfer->on_done(
          [self = shared_from_this(), op, slot](const Result<TransferReport>& report) {
            self->on_dlcp_received(op, slot, report);
          });
      keep(op, *transfer);
    }
  }
  Lock lock(mutex_);
  look_at_dlcp(op, lock);
}

// Requires the lock, and releases it. Transfers are started under it, so that no thread offers to
// one that another is about to start. What they call when they are over takes the lock, so it is
// set afterwards.
void Engine::look_at_dlcp(const std::shared_ptr<Op>& op, Lock& lock) {
  std::vector<std::uint32_t> started;
  std::optional<std::pair<std::uint32_t, Error>> failed;
  exec::SegmentExecutor::Ready ready;
  while (!op->result && !failed && op->chunks->poll_ready(ready)) {
    Op::Leaving& leaving = op->leaving[ready.send];
    if (leaving.parts.empty()) {
      started.push_back(ready.send);
      if (const Status good = send_dlcp(*op, ready); !good.ok()) {
        failed.emplace(ready.send, good.error());
      }
    } else {
      offer_dlcp(*op, ready);
    }
  }
  if (!op->result && op->chunks->done()) {
    core_.finish(*op);
    end_over();
  }
  std::vector<std::pair<std::uint32_t, Transfer>> fresh;
  for (const std::uint32_t send : started) {
    for (const Transfer& transfer : op->leaving[send].parts) {
      fresh.emplace_back(send, transfer);
      if (!op->result) op->transfers.push_back(transfer);
    }
  }
  lock.unlock();
  for (const auto& [send, transfer] : fresh) {
    transfer.on_done(
        [self = shared_from_this(), op, send = send](const Result<TransferReport>& report) {
          self->on_dlcp_sent(op, send, report);
        });
  }
  if (failed) on_dlcp_sent(op, failed->first, failed->second);
}

Status Engine::send_dlcp(Op& op, const exec::SegmentExecutor::Ready& ready) {
  const exec::RankPlan::Send& s = op.plan->sends()[ready.send];
  const std::span<const std::byte> bytes = op.chunks->outgoing(ready.send);
  const std::uint32_t segments = op.chunks->segments_of(s.buffer);
  SendOptions options{.key = key_of(op, s.slot),
                      .loss_bound = bound_of(op, s.kind),
                      .tag = {.priority = op.dlcp->queue},
                      .urgency = urgency_of(op),
                      .gradual = ready.segments != exec::SegmentRun{0, segments},
                      .deadline = limit_of(op)};
  const std::vector<Peer>& ways = ways_to(op, s.target);
  const std::vector<Part> parts = parts_of(op, s.buffer, ways, s.slot);
  op.leaving[ready.send].left = parts.size();
  for (const Part& part : parts) {
    if (op.dlcp->layout.counted) {
      options.tag_of = [&op, &s, each = op.dlcp->layout.segment_elements, part](std::int64_t first,
                                                                                std::int64_t) {
        const auto segment = static_cast<std::size_t>((part.first + first) / each);
        const SegmentTag tag = op.tags[s.buffer][segment];
        return PacketTag{tag.priority, tag.important};
      };
    }
    const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(op.type);
    THALWEG_TRY(Transfer transfer,
                ways[part.way].send({bytes.data() + offset, part.elements, op.type}, options));
    op.leaving[ready.send].parts.push_back(std::move(transfer));
  }
  if (options.gradual) offer_dlcp(op, ready);
  return ok_status();
}

void Engine::offer_dlcp(const Op& op, const exec::SegmentExecutor::Ready& ready) {
  const exec::RankPlan::Send& s = op.plan->sends()[ready.send];
  const std::vector<Part> parts = parts_of(op, s.buffer, ways_to(op, s.target), s.slot);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ElementRange range = elements_of(op, parts[i], ready.segments);
    if (range.begin == range.end) continue;
    const Status good = op.leaving[ready.send].parts[i].offer(range);
    CHECK(good.ok(), "{}", good.error().message());
  }
}

void Engine::lose_transfer(Op& op, const Error& error, const char* way, Rank rank) {
  core_.on_lost(op, rank, error.within(fmt::format("{} rank {}", way, rank.value())),
                monotonic_now());
  eventfd_write(wake_.get(), 1);
  nudge();
  settle();
}

void Engine::on_dlcp_received(const std::shared_ptr<Op>& op, std::uint32_t slot,
                              const Result<TransferReport>& report) {
  Lock lock(mutex_);
  if (op->result) return;
  if (!report.ok()) {
    lose_transfer(*op, report.error(), "from", op->plan->arrivals()[slot].source);
    return;
  }
  if (op->notes) note_transfer(*op, false, slot, *report);
  if (--op->arriving[slot] > 0) return;
  if (op->dlcp->layout.segment_elements == kWholeChunks && report->bytes > 0) {
    op->chunks->arrived(slot, {0, 1});
  }
  op->chunks->ended(slot);
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
