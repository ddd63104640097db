#include "net/group/dlcp/dlcp_operation.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "net/io/system.h"
#include "tensor/tags.h"

namespace thalweg::net {
namespace {

// With all headers it fits the 1280 bytes that every path of IPv6 must carry.
constexpr std::size_t kPayloadThatPasses = 1152;

// Maps CallOptions::priority, which may be negative, to an urgency. The lowest comes first.
std::uint32_t urgency_of(int priority) {
  constexpr int kMost = 1 << 20;
  return static_cast<std::uint32_t>(std::clamp(priority, -kMost, kMost) + kMost);
}

std::uint64_t key_of(std::uint32_t operation, std::uint32_t arrival) {
  return std::uint64_t{operation} << 32 | arrival;
}

}  // namespace

const std::vector<Peer>& DlcpOperation::ways_to(Rank rank) const {
  const auto place = std::ranges::lower_bound(plan->peers(), rank);
  return ways_[static_cast<std::size_t>(place - plan->peers().begin())];
}

double DlcpOperation::bound_of(plan::TransferKind kind) const {
  return kind == plan::TransferKind::kCopy ? options_.copy_bound : options_.reduce_bound;
}

std::chrono::nanoseconds DlcpOperation::longest() const {
  return std::chrono::nanoseconds(limit.ps() / 1000);
}

// Divides a chunk into equal parts, one per way. Each part is a transfer with the chunk's bound.
// All parts but the last are whole packets. A small chunk stays in one piece, and these take the
// ways in turn. Both ends compute the same.
std::vector<DlcpOperation::Part> DlcpOperation::parts_of(std::uint32_t buffer,
                                                         const std::vector<Peer>& ways,
                                                         std::uint32_t arrival) const {
  constexpr std::int64_t kLeastPackets = 32;
  const std::int64_t elements = executor_->wire_elements(buffer);
  const Peer& least = *std::ranges::min_element(ways, {}, &Peer::packet_payload);
  const auto packet =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(least.packet_payload() / size_of(type)));
  const std::int64_t packets = (elements + packet - 1) / packet;
  const auto count = static_cast<std::int64_t>(ways.size());
  if (packets < kLeastPackets * count) return {{arrival % ways.size(), 0, elements}};
  std::vector<Part> parts;
  for (std::int64_t way = 0; way < count; ++way) {
    const std::int64_t first = packets * way / count * packet;
    const std::int64_t end = std::min(packets * (way + 1) / count * packet, elements);
    parts.push_back({static_cast<std::size_t>(way), first, end - first});
  }
  return parts;
}

exec::Run DlcpOperation::segments_of(const Part& part, ElementRange range) const {
  const std::int64_t each = options_.layout.segment_elements;
  return {static_cast<std::size_t>((part.first + range.begin) / each),
          static_cast<std::size_t>((part.first + range.end + each - 1) / each)};
}

ElementRange DlcpOperation::elements_of(const Part& part, exec::Run segments) const {
  const std::int64_t each = options_.layout.segment_elements;
  const auto inside = [&](std::size_t segment) {
    const std::int64_t element =
        std::min(static_cast<std::int64_t>(segment) * each, part.first + part.elements);
    return std::clamp(element - part.first, std::int64_t{0}, part.elements);
  };
  return {inside(segments.begin), inside(segments.end)};
}

// Segments with larger elements of this rank's own contribution are important. The sums that it
// forwards are tagged alike, because a packet leaves before the rest of its chunk is known.
void DlcpOperation::prepare() {
  if (!options_.layout.counted) return;
  tensor::MagnitudeTagger tagger({.reference = tensor::MagnitudeReference::kSegmentMedian});
  const auto size = static_cast<std::int64_t>(size_of(type));
  tags_.resize(plan->buffers().size());
  for (std::uint32_t b = 0; b < tags_.size(); ++b) {
    const Result<tensor::Partition> partition =
        tensor::Partition::make(static_cast<std::int64_t>(plan->buffers()[b].bytes) / size,
                                Bytes(size), Bytes((options_.layout.segment_elements - 1) * size));
    CHECK(partition.ok(), "{}", partition.error().message());
    tags_[b].resize(static_cast<std::size_t>(partition->segment_count()));
    tagger.tag(type, memory[b], *partition, options_.queue, tags_[b]);
  }
}

void DlcpOperation::begin(exec::BlockSource blocks) {
  executor_ = std::make_unique<exec::SegmentExecutor>(*plan, type, op, options_.layout, memory,
                                                      std::move(blocks));
  leaving_.resize(plan->sends().size());
  const auto& arrivals = plan->arrivals();
  for (std::uint32_t arrival = 0; arrival < arrivals.size(); ++arrival) {
    arriving_.push_back(
        parts_of(arrivals[arrival].buffer, ways_to(arrivals[arrival].source), arrival).size());
  }
}

void DlcpOperation::run(const std::shared_ptr<Owner>& owner) {
  owner_ = owner;
  for (std::uint32_t arrival = 0; arrival < plan->arrivals().size(); ++arrival) {
    if (const Status posted = expect(arrival); !posted.ok()) {
      on_received(arrival, posted.error());
      return;
    }
  }
  Lock lock(owner_->mutex());
  go_on(lock);
}

Status DlcpOperation::expect(std::uint32_t arrival) {
  const exec::RankPlan::Arrival& planned = plan->arrivals()[arrival];
  const std::span<std::byte> wire = executor_->incoming(arrival);
  const std::vector<Peer>& ways = ways_to(planned.source);
  for (const Part& part : parts_of(planned.buffer, ways, arrival)) {
    const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(type);
    RecvOptions options{.key = key_of(number, arrival),
                        .loss_bound = bound_of(planned.kind),
                        .deadline = longest()};
    if (options_.layout.segment_elements < kWholeChunks) {
      options.on_arrival = [self = shared_from_this(), arrival,
                            part](std::span<const ElementRange> ranges) {
        self->on_arrival(arrival, part, ranges);
      };
    }
    THALWEG_TRY(const Transfer transfer,
                ways[part.way].recv({wire.data() + offset, part.elements, type}, options));
    transfer.on_done([self = shared_from_this(), arrival](const Report& report) {
      self->on_received(arrival, report);
    });
    const Lock lock(owner_->mutex());
    if (result) transfer.cancel();
    transfers_.push_back(transfer);
  }
  return ok_status();
}

// Transfers are started with the mutex, so that no thread offers to one that another is about to
// start. What they call when they are over takes the mutex, so it is set afterwards.
void DlcpOperation::go_on(Lock& lock) {
  std::vector<std::uint32_t> begun;
  std::optional<std::pair<std::uint32_t, Error>> failed;
  exec::SegmentExecutor::Ready ready;
  while (!result && !failed && executor_->poll_ready(ready)) {
    if (!leaving_[ready.send].transfers.empty()) {
      offer(ready);
      continue;
    }
    begun.push_back(ready.send);
    if (const Status good = start_send(ready); !good.ok()) {
      failed.emplace(ready.send, good.error());
    }
  }
  std::vector<std::pair<std::uint32_t, Transfer>> fresh;
  for (const std::uint32_t send : begun) {
    for (const Transfer& transfer : leaving_[send].transfers) {
      fresh.emplace_back(send, transfer);
      transfers_.push_back(transfer);
    }
  }
  if (!result && executor_->done()) owner_->on_done(*this);
  lock.unlock();
  for (const auto& each : fresh) {
    each.second.on_done([self = shared_from_this(), send = each.first](const Report& report) {
      self->on_sent(send, report);
    });
  }
  if (failed) on_sent(failed->first, failed->second);
}

Status DlcpOperation::start_send(const exec::SegmentExecutor::Ready& ready) {
  const exec::RankPlan::Send& s = plan->sends()[ready.send];
  const std::span<const std::byte> bytes = executor_->outgoing(ready.send);
  SendOptions options{.key = key_of(number, s.arrival),
                      .loss_bound = bound_of(s.kind),
                      .tag = {.priority = options_.queue},
                      .urgency = urgency_of(priority),
                      .gradual = ready.segments != exec::Run{0, executor_->segments_of(s.buffer)},
                      .deadline = longest()};
  const std::vector<Peer>& ways = ways_to(s.target);
  const std::vector<Part> parts = parts_of(s.buffer, ways, s.arrival);
  Leaving& leaving = leaving_[ready.send];
  leaving.left = parts.size();
  for (const Part& part : parts) {
    if (options_.layout.counted) {
      options.tag_of = [this, &s, part](std::int64_t first, std::int64_t) {
        const auto segment =
            static_cast<std::size_t>((part.first + first) / options_.layout.segment_elements);
        const SegmentTag tag = tags_[s.buffer][segment];
        return PacketTag{tag.priority, tag.important};
      };
    }
    const std::size_t offset = static_cast<std::size_t>(part.first) * size_of(type);
    THALWEG_TRY(Transfer transfer,
                ways[part.way].send({bytes.data() + offset, part.elements, type}, options));
    leaving.transfers.push_back(std::move(transfer));
  }
  if (options.gradual) offer(ready);
  return ok_status();
}

void DlcpOperation::offer(const exec::SegmentExecutor::Ready& ready) const {
  const exec::RankPlan::Send& s = plan->sends()[ready.send];
  const std::vector<Part> parts = parts_of(s.buffer, ways_to(s.target), s.arrival);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ElementRange range = elements_of(parts[i], ready.segments);
    if (range.begin == range.end) continue;
    const Status good = leaving_[ready.send].transfers[i].offer(range);
    CHECK(good.ok(), "{}", good.error().message());
  }
}

void DlcpOperation::on_arrival(std::uint32_t arrival, const Part& part,
                               std::span<const ElementRange> ranges) {
  Lock lock(owner_->mutex());
  if (result) return;
  for (const ElementRange& range : ranges) executor_->arrived(arrival, segments_of(part, range));
  go_on(lock);
}

void DlcpOperation::on_received(std::uint32_t arrival, const Report& report) {
  Lock lock(owner_->mutex());
  if (result) return;
  const Rank source = plan->arrivals()[arrival].source;
  if (!report.ok()) {
    owner_->on_lost(*this, source,
                    report.error().within(fmt::format("from rank {}", source.value())));
    return;
  }
  if (notes) notes->add_transfer(false, arrival, *report, monotonic_now());
  if (--arriving_[arrival] > 0) return;
  if (options_.layout.segment_elements == kWholeChunks && report->bytes > 0) {
    executor_->arrived(arrival, {0, 1});
  }
  executor_->ended(arrival);
  go_on(lock);
}

void DlcpOperation::on_sent(std::uint32_t send, const Report& report) {
  Lock lock(owner_->mutex());
  if (result) return;
  const Rank target = plan->sends()[send].target;
  if (!report.ok()) {
    owner_->on_lost(*this, target,
                    report.error().within(fmt::format("to rank {}", target.value())));
    return;
  }
  if (notes) notes->add_transfer(true, send, *report, monotonic_now());
  if (--leaving_[send].left > 0) return;
  executor_->sent(send);
  go_on(lock);
}

void DlcpOperation::cancel() {
  for (const Transfer& transfer : transfers_) transfer.cancel();
}

void DlcpOperation::average(bool mean, int ranks) {
  if (options_.layout.counted) {
    executor_->finish(mean, ranks);
  } else {
    PlannedOperation::average(mean, ranks);
  }
}

void DlcpOperation::keep_residual(int ranks, const std::byte* tensor, std::size_t bytes,
                                  std::byte* residual) const {
  if (options_.layout.counted) {
    executor_->keep_residual(ranks, tensor, residual);
  } else {
    PlannedOperation::keep_residual(ranks, tensor, bytes, residual);
  }
}

std::optional<Rank> DlcpOperation::waits_for() const {
  if (!executor_ || result) return std::nullopt;
  for (std::uint32_t arrival = 0; arrival < plan->arrivals().size(); ++arrival) {
    if (executor_->outstanding(arrival)) return plan->arrivals()[arrival].source;
  }
  for (std::uint32_t send = 0; send < leaving_.size(); ++send) {
    if (leaving_[send].left > 0) return plan->sends()[send].target;
  }
  return std::nullopt;
}

std::string DlcpOperation::obstacle(Rank rank) const {
  const std::vector<Peer>& ways = ways_to(rank);
  const auto vanishes = std::ranges::find_if(ways, &Peer::data_vanishes);
  if (vanishes == ways.end()) return {};
  return fmt::format(
      "packets with {} bytes of data from rank {} do not arrive, though its signals do: if the "
      "path drops large packets, set THALWEG_DLCP_PAYLOAD={} on all ranks",
      vanishes->packet_payload(), rank.value(), kPayloadThatPasses);
}

}  // namespace thalweg::net
