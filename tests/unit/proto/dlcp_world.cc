#include "proto/dlcp_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/control_message.h"

namespace thalweg::proto {
namespace {

constexpr wire::JobToken kJob = 0x1122334455667788;
constexpr std::byte kGuardByte{0xa5};
// More steps than any schedule needs: a world that takes this many makes no progress.
constexpr std::uint64_t kMostSteps = 20'000'000;

}  // namespace

World::World(const WorldOptions& options)
    : options_(options),
      prng_(options.seed),
      tracks_(options.transfers.size()),
      results_(options.transfers.size()) {
  for (std::size_t i = 0; i < 2; ++i) {
    ends_[i].endpoint = std::make_unique<DlcpEndpoint>(options.endpoints[i]);
    const std::size_t paths = options.channels[i].paths.size();
    ends_[i].paths_free.resize(paths);
    ends_[i].taken.resize(paths);
    if (paths > 0) ends_[i].endpoint->set_paths(static_cast<std::uint32_t>(paths), now_);
  }
  for (std::uint32_t plan = 0; plan < options.transfers.size(); ++plan) {
    const PlannedTransfer& transfer = options.transfers[plan];
    if (!transfer.sender_missing) work_.push_back({transfer.send_at, plan, Work::Kind::kSend, {}});
    if (!transfer.receiver_missing) {
      work_.push_back({transfer.receive_at, plan, Work::Kind::kReceive, {}});
    }
    for (const PlannedTransfer::Offer& offer : transfer.offers) {
      work_.push_back({offer.at, plan, Work::Kind::kOffer, offer.segments});
    }
    if (transfer.cancel_at) work_.push_back({*transfer.cancel_at, plan, Work::Kind::kCancel, {}});
  }
  if (options.death) work_.push_back({*options.death, 0, Work::Kind::kDeath, {}});
  std::ranges::stable_sort(work_, std::greater<>(), &Work::at);
}

void World::fail(const std::string& text) {
  if (broken_.empty()) broken_ = fmt::format("at {}: {}", to_string(now_.since_start()), text);
}

std::optional<Time> World::next_time() const {
  std::optional<Time> next;
  const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
  if (!packets_.empty()) consider(packets_.front().at);
  if (!work_.empty()) consider(work_.back().at);
  for (const End& end : ends_) {
    if (!end.inbox.empty()) consider(end.inbox.front().at);
    if (!std::ranges::all_of(end.waiting, &std::deque<Packet>::empty)) consider(end.line_free);
    if (const auto timeout = end.endpoint->next_timeout()) consider(*timeout);
  }
  return next;
}

std::string World::run() {
  for (std::uint64_t steps = 0; broken_.empty(); ++steps) {
    const std::optional<Time> next = next_time();
    if (!next) break;
    if (*next < now_) fail("a time in the past");
    now_ = std::max(now_, *next);
    step();
    if (steps == kMostSteps) fail("no end in sight");
  }
  if (broken_.empty()) check_end();
  return broken_;
}

void World::step() {
  while (!work_.empty() && work_.back().at <= now_) {
    const Work work = work_.back();
    work_.pop_back();
    do_work(work);
  }
  for (int i = 0; i < 2; ++i) serve(i);
  while (!packets_.empty() && packets_.front().at <= now_) {
    std::ranges::pop_heap(packets_, std::greater<>());
    const Packet packet = packets_.back();
    packets_.pop_back();
    deliver(packet);
    drive(packet.to);
  }
  for (int i = 0; i < 2; ++i) {
    End& end = ends_[at(i)];
    while (!end.inbox.empty() && end.inbox.front().at <= now_) {
      const Letter letter = std::move(end.inbox.front());
      end.inbox.pop_front();
      wire::ControlMessage message;
      wire::ControlEnvelope about;
      const wire::WireError error = wire::decode_control(letter.bytes, message, about);
      if (error != wire::WireError::kNone || about.job != kJob) fail("a message did not decode");
      if (const auto* stop = std::get_if<wire::StopMessage>(&message)) {
        end.stopped_at = std::max(end.stopped_at, stop->end_sequence);
      }
      end.endpoint->on_control(message, now_);
      drive(i);
    }
    const auto timeout = end.endpoint->next_timeout();
    if (timeout && *timeout <= now_) {
      end.endpoint->on_timeout(now_);
      drive(i);
      const auto after = end.endpoint->next_timeout();
      if (after && *after <= now_) fail("a timeout that has passed is not dealt with");
    }
  }
}

void World::do_work(const Work& work) {
  const PlannedTransfer& planned = options_.transfers[work.plan];
  Track& track = tracks_[work.plan];
  const int receiver = 1 - planned.source;
  switch (work.kind) {
    case Work::Kind::kSend: {
      TransferSpec spec = planned.spec;
      spec.cookie = work.plan;
      End& end = ends_[at(planned.source)];
      const auto handle = end.endpoint->start_send(spec, planned.tags, now_);
      if (handle.ok()) track.send_handle = *handle;
      if (!handle.ok() && !end.dead) fail(handle.error().message());
      track.send_started = now_;
      for (std::size_t i = 0; handle.ok() && i < track.offered.size(); ++i) {
        if (track.offered[i]) end.endpoint->offer(*handle, {i, i + 1}, now_);
      }
      const Bytes packet = spec.payload + options_.endpoints[at(planned.source)].packet_overhead;
      const double burst = static_cast<double>(packet.count()) * 8 *
                           options_.endpoints[at(planned.source)].burst_segments;
      end.burst_bits = std::max(end.burst_bits, burst);
      drive(planned.source);
      break;
    }
    case Work::Kind::kReceive:
      start_receive(work);
      drive(receiver);
      break;
    case Work::Kind::kOffer:
      offer(work);
      break;
    case Work::Kind::kCancel: {
      const auto handle = planned.cancelled_by_receiver ? track.receive_handle : track.send_handle;
      const int end = planned.cancelled_by_receiver ? receiver : planned.source;
      if (handle) ends_[at(end)].endpoint->cancel(*handle, "a test", now_);
      drive(end);
      break;
    }
    case Work::Kind::kDeath:
      for (int i = 0; i < 2; ++i) {
        ends_[at(i)].dead = true;
        ends_[at(i)].inbox.clear();
        ends_[at(i)].endpoint->connection_lost("the peer died", now_);
        drive(i);
      }
  }
}

// What is offered before the sender starts is offered when it starts.
void World::offer(const Work& work) {
  const PlannedTransfer& planned = options_.transfers[work.plan];
  Track& track = tracks_[work.plan];
  track.offered.resize(std::max(track.offered.size(), work.segments.end));
  std::fill(track.offered.begin() + static_cast<std::ptrdiff_t>(work.segments.begin),
            track.offered.begin() + static_cast<std::ptrdiff_t>(work.segments.end), true);
  if (!track.send_handle) return;
  ends_[at(planned.source)].endpoint->offer(*track.send_handle, work.segments, now_);
  drive(planned.source);
}

void World::start_receive(const Work& work) {
  const PlannedTransfer& planned = options_.transfers[work.plan];
  Track& track = tracks_[work.plan];
  TransferSpec spec = planned.receiver_spec.value_or(planned.spec);
  spec.cookie = work.plan;
  const auto partition = tensor::Partition::make(
      spec.elements, Bytes(static_cast<std::int64_t>(size_of(spec.type))), spec.payload);
  CHECK(partition.ok());
  track.segments = partition->segment_count();
  track.placed.resize(static_cast<std::size_t>(track.segments));
  track.receive_started = now_;
  if (options_.with_bytes) {
    const auto size = static_cast<std::size_t>(partition->tensor_size().count());
    track.source.resize(size);
    for (std::byte& byte : track.source) byte = static_cast<std::byte>(prng_.next() & 0xff);
    track.target.assign(size + 2 * kGuard, kGuardByte);
  }
  End& end = ends_[at(1 - planned.source)];
  const auto handle = end.endpoint->start_recv(spec, now_);
  if (handle.ok()) track.receive_handle = *handle;
  if (!handle.ok() && !end.dead) fail(handle.error().message());
}

void World::drive(int i) {
  DlcpEndpoint& endpoint = *ends_[at(i)].endpoint;
  DataBatch batch;
  while (endpoint.poll_data(now_, options_.endpoints[at(i)].burst_segments, batch)) {
    transmit(i, batch);
  }
  wire::ControlMessage message;
  while (endpoint.poll_control(message)) post(i, message);
  TransferOutcome outcome;
  while (endpoint.poll_event(outcome)) take_outcome(i, std::move(outcome));
}

void World::check_rate(End& end, const DataBatch& batch) {
  const DlcpOptions& options = options_.endpoints[at(&end == &ends_[0] ? 0 : 1)];
  const auto overhead = static_cast<double>(options.packet_overhead.count());
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    end.sent_bits += (batch.header(i).length + overhead) * 8;
  }
  const double allowed = now_.since_start().s() * static_cast<double>(options.rate.line_rate.bps());
  if (end.sent_bits > allowed * 1.000001 + 2 * end.burst_bits) fail("faster than the line");
}

void World::transmit(int from, const DataBatch& batch) {
  End& end = ends_[at(from)];
  const ChannelOptions& channel = options_.channels[at(from)];
  check_rate(end, batch);
  end.last_path = batch.path;
  if (!channel.paths.empty()) end.taken[batch.path] += batch.count;
  if (batch.count == 0 || batch.count > options_.endpoints[at(from)].burst_segments) {
    fail("a batch of a size not asked for");
  }
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    const wire::DataHeader header = batch.header(i);
    const auto plan = static_cast<std::size_t>(batch.cookie);
    const std::vector<bool>& offered = tracks_[plan].offered;
    if (options_.transfers[plan].spec.gradual &&
        (header.segment >= offered.size() || !offered[header.segment])) {
      fail("a segment left that was not offered");
    }
    if (keep_sent_ && from == 0) sent_.push_back({now_, header, batch.path});
    if (end.in_burst ? prng_.chance(channel.burst_end) : prng_.chance(channel.burst_start)) {
      end.in_burst = !end.in_burst;
    }
    const bool corrupted = prng_.chance(channel.corruption);
    if (corrupted) corrupt(header);
    const bool told = from == 0 && options_.lose && options_.lose(header);
    Packet packet;
    packet.plan = static_cast<std::uint32_t>(batch.cookie);
    packet.header = header;
    packet.path = batch.path;
    launch(from, packet, end.in_burst || corrupted || told);
  }
}

void World::launch(int from, Packet packet, bool lose) {
  End& end = ends_[at(from)];
  const ChannelOptions& channel = options_.channels[at(from)];
  if (lose || prng_.chance(channel.loss)) {
    ++lost_;
    return;
  }
  if (!channel.paths.empty()) return launch_by_path(from, packet);
  if (channel.bottleneck == Bandwidth()) return arrive_at(from, now_, packet);
  if (channel.strict_priority) {
    end.waiting[packet.header.tag.priority].push_back(packet);
    return serve(from);
  }
  end.line_free = std::max(end.line_free, now_) + time_on_line(from, packet);
  arrive_at(from, end.line_free, packet);
}

void World::launch_by_path(int from, const Packet& packet) {
  const PathChannel& path = options_.channels[at(from)].paths[packet.path];
  const std::size_t queue = path.behind < 0 ? packet.path : static_cast<std::size_t>(path.behind);
  Time& free = ends_[at(from)].paths_free[queue];
  const bool dead = now_ >= path.dead_from && now_ < path.dead_until;
  const bool full = path.bottleneck > Bandwidth() && free > now_ + path.longest_wait;
  if (dead || full || prng_.chance(path.loss)) {
    ++lost_;
    return;
  }
  free = std::max(free, now_);
  if (path.bottleneck > Bandwidth()) {
    free += path.bottleneck.transmission_time(Bytes(packet.header.length) +
                                              options_.endpoints[at(from)].packet_overhead);
  }
  arrive_at(from, free + path.delay, packet);
}

Duration World::time_on_line(int from, const Packet& packet) const {
  return options_.channels[at(from)].bottleneck.transmission_time(
      Bytes(packet.header.length) + options_.endpoints[at(from)].packet_overhead);
}

void World::serve(int from) {
  End& end = ends_[at(from)];
  const auto some = [](const std::deque<Packet>& queue) { return !queue.empty(); };
  for (auto queue = std::ranges::find_if(end.waiting, some);
       queue != end.waiting.end() && end.line_free <= now_;
       queue = std::ranges::find_if(end.waiting, some)) {
    end.line_free = now_ + time_on_line(from, queue->front());
    arrive_at(from, end.line_free, queue->front());
    queue->pop_front();
  }
}

void World::arrive_at(int from, Time leaves, Packet packet) {
  const ChannelOptions& channel = options_.channels[at(from)];
  const int copies = prng_.chance(channel.duplication) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const Duration late = Duration::seconds(channel.jitter.s() * prng_.real());
    packet.at = leaves + channel.delay + late;
    packet.order = next_order_++;
    packet.to = 1 - from;
    packets_.push_back(packet);
    std::ranges::push_heap(packets_, std::greater<>());
  }
}

void World::corrupt(const wire::DataHeader& header) {
  scratch_.assign(wire::data_overhead(false) + header.length, std::byte{0});
  const auto head = std::span(scratch_).first(wire::data_overhead(false));
  const auto payload = std::span(scratch_).subspan(head.size());
  wire::encode_data_header(header, scratch_);
  wire::put_checksum(head, payload);
  wire::DataHeader decoded;
  if (wire::decode_data_header(scratch_, decoded) != wire::WireError::kNone || decoded != header ||
      !wire::data_is_intact(scratch_)) {
    fail("a header is not what it was before encoding");
  }
  for (std::uint64_t flips = 1 + prng_.below(8); flips > 0; --flips) {
    scratch_[prng_.below(wire::kDataHeaderSize)] ^= static_cast<std::byte>(1U << prng_.below(8));
  }
  scratch_.resize(prng_.below(scratch_.size() + 1));
  (void)wire::decode_data_header(scratch_, decoded);
}

void World::post(int from, const wire::ControlMessage& message) {
  if (ends_[at(from)].dead) return;
  const ChannelOptions& channel = options_.channels[at(from)];
  End& to = ends_[at(1 - from)];
  Letter letter;
  const wire::ControlEnvelope about{
      .job = kJob, .sequence = ends_[at(from)].letters++, .checked = true};
  letter.bytes.resize(wire::control_size(message, about));
  wire::encode_control(message, about, letter.bytes);
  letter.at =
      now_ + channel.control_delay + Duration::seconds(channel.control_jitter.s() * prng_.real());
  if (!to.inbox.empty()) letter.at = std::max(letter.at, to.inbox.back().at);
  to.inbox.push_back(std::move(letter));
  const auto* stop = std::get_if<wire::StopMessage>(&message);
  if (stop == nullptr || !channel.stop_copies) return;
  Packet copy;
  copy.header.sequence = stop->end_sequence;
  copy.header.tag.priority = stop->queue;
  copy.stop_copy = true;
  copy.path = ends_[at(from)].last_path;
  launch(from, copy, ends_[at(from)].in_burst);
}

void World::deliver(const Packet& packet) {
  if (packet.stop_copy) {
    ends_[at(packet.to)].endpoint->on_data_end(packet.header.sequence, packet.header.tag.priority,
                                               now_, packet.path);
    return;
  }
  if (packet.header.sequence < ends_[at(packet.to)].stopped_at) ++overtaken_;
  const Placement placement =
      ends_[at(packet.to)].endpoint->on_data(packet.header, false, now_, packet.path);
  if (placement.verdict == Placement::Verdict::kPlace) place(packet, placement);
}

void World::place(const Packet& packet, const Placement& placement) {
  const auto plan = static_cast<std::uint32_t>(placement.cookie);
  if (plan != packet.plan) return fail("a segment in the wrong tensor");
  Track& track = tracks_[plan];
  if (results_[plan].received) return fail("a segment was placed after the end");
  if (track.placed[packet.header.segment]) return fail("a segment was placed twice");
  track.placed[packet.header.segment] = true;
  ++track.placed_count;
  if (!options_.with_bytes) return;
  const auto offset = static_cast<std::size_t>(placement.offset.count());
  if (offset + packet.header.length > track.source.size()) return fail("a segment sticks out");
  std::copy_n(track.source.begin() + static_cast<std::ptrdiff_t>(offset), packet.header.length,
              track.target.begin() + static_cast<std::ptrdiff_t>(kGuard + offset));
}

}  // namespace thalweg::proto
