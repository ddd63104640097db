// Draws worlds from a seed.
#include <algorithm>

#include "proto/dlcp_world.h"

namespace thalweg::proto {
namespace {

Duration up_to(Prng& prng, std::int64_t most_us) {
  return Duration::nanoseconds(
      static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(most_us) * 1000 + 1)));
}

DlcpOptions random_endpoint(Prng& prng, const char* peer) {
  constexpr std::uint32_t kBursts[] = {1, 2, 8, 44};
  constexpr std::int64_t kRates[] = {1, 10, 100};
  DlcpOptions options;
  options.peer = peer;
  options.burst_segments = kBursts[prng.below(4)];
  options.rate.line_rate = Bandwidth::gbps(kRates[prng.below(3)]);
  options.rate.learn_capacity = prng.chance(0.2);
  if (prng.chance(0.3)) options.rate.report_period = Duration::microseconds(5);
  if (prng.chance(0.2)) options.first_transfer = ~std::uint32_t{0} - 2;
  return options;
}

ChannelOptions random_channel(Prng& prng, bool lossless) {
  ChannelOptions channel;
  channel.delay = up_to(prng, 200);
  if (prng.chance(0.5)) channel.jitter = up_to(prng, 300);
  channel.control_delay = up_to(prng, 200);
  if (prng.chance(0.5)) channel.control_jitter = up_to(prng, 300);
  if (prng.chance(0.3)) {
    channel.bottleneck =
        Bandwidth::bits_per_second(static_cast<std::int64_t>(50'000'000) << prng.below(6));
    channel.strict_priority = prng.chance(0.5);
  }
  channel.stop_copies = prng.chance(0.5);
  if (prng.chance(0.3)) channel.duplication = prng.real() * 0.3;
  if (lossless) return channel;
  if (prng.chance(0.7)) channel.loss = prng.real() * (prng.chance(0.2) ? 0.5 : 0.1);
  if (prng.chance(0.3)) {
    channel.burst_start = prng.real() * 0.05;
    channel.burst_end = 0.1 + prng.real() * 0.4;
  }
  if (prng.chance(0.3)) channel.corruption = prng.real() * 0.1;
  if (prng.chance(0.1)) channel.control_jitter = up_to(prng, 20'000);
  if (prng.chance(0.1)) channel.jitter = up_to(prng, 20'000);
  return channel;
}

LossBound random_bound(Prng& prng) {
  constexpr std::uint32_t kBounds[] = {0,           1'000'000,   10'000'000, 100'000'000,
                                       290'000'000, 500'000'000, 999'999'999};
  if (prng.chance(0.3)) return LossBound();
  if (prng.chance(0.2)) {
    return LossBound::parts_per_billion(static_cast<std::uint32_t>(prng.below(1'000'000'000)));
  }
  return LossBound::parts_per_billion(kBounds[prng.below(7)]);
}

TransferSpec random_spec(Prng& prng, std::uint64_t key) {
  constexpr std::int64_t kPayloads[] = {8, 20, 64, 1400};
  TransferSpec spec;
  spec.key = key;
  spec.type = static_cast<DType>(prng.below(kDTypeCount));
  spec.payload = Bytes(kPayloads[prng.below(4)]);
  const std::int64_t per_segment =
      spec.payload.count() / static_cast<std::int64_t>(size_of(spec.type));
  const std::uint64_t most_segments = prng.chance(0.1) ? 60 : 12;
  const auto elements = static_cast<std::uint64_t>(per_segment) * most_segments;
  spec.elements = static_cast<std::int64_t>(prng.below(elements + 1));
  if (is_floating(spec.type)) {
    spec.bound = random_bound(prng);
    if (prng.chance(0.3)) {
      spec.target = LossBound::parts_per_billion(
          static_cast<std::uint32_t>(prng.below(spec.bound.ppb() + 1ULL)));
    }
  }
  spec.urgency = static_cast<std::uint32_t>(prng.below(3));
  spec.deadline = Duration::milliseconds(60'000);
  return spec;
}

TransferSpec changed(Prng& prng, TransferSpec spec) {
  switch (prng.below(4)) {
    case 0:
      spec.elements += 1 + static_cast<std::int64_t>(prng.below(100));
      break;
    case 1:
      spec.payload = Bytes(spec.payload.count() + 8);
      break;
    case 2:
      spec.type = static_cast<DType>((static_cast<int>(spec.type) + 1) % kDTypeCount);
      break;
    default:
      spec.bound = LossBound::parts_per_billion(spec.bound.ppb() / 2 + 1);
      break;
  }
  // Keeps the spec valid for the receiver.
  if (!is_floating(spec.type)) spec.bound = LossBound();
  spec.target.reset();
  return spec;
}

// Offers all segments in pieces, in any order; some pieces overlap.
void make_gradual(Prng& prng, PlannedTransfer& planned) {
  planned.spec.gradual = true;
  const auto partition = tensor::Partition::make(
      planned.spec.elements, Bytes(static_cast<std::int64_t>(size_of(planned.spec.type))),
      planned.spec.payload);
  const auto segments = static_cast<std::size_t>(partition->segment_count());
  const std::int64_t span_us = prng.chance(0.2) ? 20'000 : 1'500;
  for (std::size_t begin = 0; begin < segments;) {
    const std::size_t end = std::min(segments, begin + 1 + prng.below(8));
    const std::size_t from = begin - std::min<std::size_t>(begin, prng.below(3));
    planned.offers.push_back({Time() + up_to(prng, span_us), {from, end}});
    begin = end;
  }
}

void make_unfair(Prng& prng, PlannedTransfer& planned) {
  TransferSpec& spec = planned.spec;
  if (prng.chance(0.5)) {
    spec.deadline = Duration::nanoseconds(1 + static_cast<std::int64_t>(prng.below(5'000'000)));
  }
  if (!planned.offers.empty() && prng.chance(0.2)) planned.offers.pop_back();
  if (prng.chance(0.15)) planned.receiver_spec = changed(prng, spec);
  if (prng.chance(0.1)) planned.sender_missing = true;
  if (prng.chance(0.1)) planned.receiver_missing = true;
  if (prng.chance(0.2)) {
    planned.cancel_at = Time() + up_to(prng, 2000);
    planned.cancelled_by_receiver = prng.chance(0.5);
  }
}

}  // namespace

Schedule random_schedule(std::uint64_t seed) {
  Prng prng(seed);
  Schedule schedule;
  schedule.fair = prng.chance(0.6);
  schedule.lossless = schedule.fair && prng.chance(0.3);
  WorldOptions& world = schedule.options;
  world.seed = prng.next();
  world.with_bytes = prng.chance(0.3);
  world.endpoints = {random_endpoint(prng, "bob"), random_endpoint(prng, "alice")};
  world.channels = {random_channel(prng, schedule.lossless),
                    random_channel(prng, schedule.lossless)};
  const std::uint64_t transfers = 1 + prng.below(prng.chance(0.2) ? 12 : 3);
  for (std::uint64_t key = 0; key < transfers; ++key) {
    PlannedTransfer planned;
    planned.source = static_cast<int>(prng.below(2));
    planned.spec = random_spec(prng, key);
    planned.send_at = Time() + up_to(prng, 1000);
    planned.receive_at = Time() + up_to(prng, 1000);
    if (prng.chance(0.3)) {
      planned.tags = TagSource([](SegmentIndex i) {
        return SegmentTag{static_cast<std::uint8_t>(i.value() / 3 % kPriorityCount),
                          i.value() % 2 == 0};
      });
    } else if (prng.chance(0.5)) {
      planned.tags = SegmentTag{static_cast<std::uint8_t>(prng.below(kPriorityCount))};
    }
    if (prng.chance(0.4)) make_gradual(prng, planned);
    if (!schedule.fair) make_unfair(prng, planned);
    world.transfers.push_back(planned);
  }
  if (!schedule.fair && prng.chance(0.2)) world.death = Time() + up_to(prng, 3000);
  if (!schedule.fair && prng.chance(0.05)) world.channels[0].loss = 1;
  return schedule;
}

}  // namespace thalweg::proto
