#include "net/atp/worker_driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/atp/job_message.h"
#include "net/atp/server_driver.h"
#include "net/io/udp_socket.h"

namespace thalweg::net {
namespace {

// A limit, so that arrived packets do not wait for long.
constexpr int kPacketsPerPump = 2048;

const std::byte* data_of(const AtpReduction& reduction, const proto::AtpBlock& block) {
  return reduction.data + static_cast<std::size_t>(block.first_element) * size_of(reduction.type);
}

// The exponent that this rank's elements of the block need.
tensor::BlockExponent needed_by(const AtpReduction& reduction, const proto::AtpBlock& block) {
  return tensor::needed_exponent(reduction.type, data_of(reduction, block), block.elements);
}

}  // namespace

proto::AtpWorkerOptions worker_options(const AtpNodeOptions& node) {
  proto::AtpWorkerOptions options;
  options.job = node.job;
  const std::vector<std::uint8_t> groups = atp_groups(node);
  const AtpPlace place = atp_place(node);
  options.group = place.group;
  options.index = place.index;
  options.fan_in = groups[place.group];
  options.group_count = static_cast<std::uint8_t>(groups.size());
  options.servers = static_cast<std::uint32_t>(node.servers);
  options.elements = node.elements;
  options.seats = atp_seats(node);
  options.keyed = node.key.has_value();
  options.window = node.window;
  options.paths = node.switch_paths;
  // Two frames of Ethernet, so that a job gets its share of a link beside TCP flows, whose windows
  // grow by one (docs/deviations.md, figure 12).
  options.congestion.step = Bytes(3000);
  // Members are processes that share cores, so a late packet is usually not lost.
  options.recovery.initial = Duration::milliseconds(100);
  options.recovery.least = Duration::milliseconds(10);
  options.recovery.patient_start = true;
  // Each shard sends its runs of a server's sums at its own pace, so sums arrive out of order.
  if (node.shards.size() > 1) {
    // The limit must be low enough to find a hole before the window stalls.
    const std::uint32_t most = std::max(options.window / 2 / options.servers, 1U);
    const auto runs = static_cast<std::uint32_t>(UdpSocket::kMaxPackets * node.shards.size());
    options.recovery.out_of_sequence = std::min(runs, most);
    options.recovery.tail_holes = false;
  }
  return options;
}

AtpWorkerDriver::AtpWorkerDriver(AtpMember& member)
    : member_(member),
      worker_(worker_options(member.options())),
      path_(member.options().paths, member.has_switch(),
            static_cast<std::uint32_t>(member.options().servers)) {}

void AtpWorkerDriver::start(AtpReduction reduction, Time now) {
  if (worker_.idle()) path_.on_start(now);
  proto::AtpTensorSpec spec{.elements = reduction.elements,
                            .deadline = reduction.deadline,
                            .cookie = first_flight_ + flights_.size()};
  if (tensor::has_fixed_point(reduction.type) && reduction.exponents.empty()) {
    spec.scaling = proto::atp_scaling(reduction.type, reduction.elements, reduction.purpose);
  }
  const auto started = worker_.start(spec, now);
  if (!started.ok()) {
    reduction.done(started.error());
    return;
  }
  flights_.push_back({std::move(reduction)});
}

void AtpWorkerDriver::on_packet(const wire::AtpHeader& header, std::span<const std::byte> packet,
                                bool by_switch, Time now) {
  if (header.kind == wire::AtpKind::kAbort) return on_abort(header, now);
  path_.on_answer(by_switch, now);
  if (header.kind == wire::AtpKind::kMissing) {
    worker_.on_missing(header);
    return;
  }
  take_sum(header, wire::atp_payload(packet, header), by_switch, now);
}

void AtpWorkerDriver::on_own(const wire::AtpHeader& header, std::span<const std::byte> elements,
                             Time now) {
  if (header.kind == wire::AtpKind::kAbort) return on_abort(header, now);
  take_sum(header, elements, false, now);
}

void AtpWorkerDriver::on_abort(const wire::AtpHeader& header, Time now) {
  const proto::AtpWorkerSet missing = member_.ranks_of(header);
  std::optional<int> only;
  if (missing.count() == 1) {
    member_.for_each(missing, [&](std::size_t rank) { only = static_cast<int>(rank); });
  }
  worker_.on_abort(header, now, only);
}

void AtpWorkerDriver::take_sum(const wire::AtpHeader& header, std::span<const std::byte> elements,
                               bool by_switch, Time now) {
  if (!member_.checker().holds(header, elements)) {
    worker_.on_corrupt(header, way_of(header, by_switch), now);
    return;
  }
  const proto::AtpPlacement placement = worker_.on_parameter(header, now);
  if (placement.verdict == proto::AtpPlacement::Verdict::kPlace) place(placement, elements);
}

std::string AtpWorkerDriver::way_of(const wire::AtpHeader& header, bool by_switch) const {
  const AtpNodeOptions& node = member_.options();
  if (by_switch) {
    const std::size_t shard = shard_of(header.job, header.sequence, node.shards.size());
    return fmt::format("the switch at {}", node.shards[shard].unmapped().to_string());
  }
  const std::size_t server = header.sequence % static_cast<std::size_t>(node.servers);
  const SocketAddress& address = node.server_apart ? *node.server_apart : node.members[server];
  return fmt::format("the server at {} itself", address.unmapped().to_string());
}

void AtpWorkerDriver::fail(const Error& cause, Time now) { worker_.fail(cause, now); }

bool AtpWorkerDriver::pump(Time now) {
  proto::AtpOutcome outcome;
  while (worker_.poll_event(outcome)) end(outcome);
  proto::AtpTransmit transmit;
  for (int i = 0; i < kPacketsPerPump; ++i) {
    if (!worker_.poll_transmit(now, transmit)) return true;
    send(transmit, now);
    // A gradient for the own server may have completed the last sum of a reduction.
    while (transmit.own && worker_.poll_event(outcome)) end(outcome);
  }
  return !worker_.ready();
}

void AtpWorkerDriver::send(proto::AtpTransmit& transmit, Time now) {
  const AtpReduction& reduction = flight(transmit.block.cookie).reduction;
  wire::AtpHeader& header = transmit.header;
  if (transmit.block.scaled()) {
    header.needed_exponent = needed_by(reduction, transmit.block);
    header.next_exponent =
        transmit.ahead.elements > 0 ? needed_by(reduction, transmit.ahead) : tensor::kNoExponent;
  } else if (!reduction.exponents.empty()) {
    header.exponent = reduction.exponents[transmit.block.index];
  }
  if (transmit.own) return give(transmit, now);
  const bool direct = transmit.past_switches || path_.direct(transmit.again, now);
  const bool probes = direct && path_.probes(transmit.again, header.sequence);
  wire::AtpHeader by_switch = header;
  if (direct) {
    ++sent_direct_;
    header.level = wire::kAtpServerLevel;
    // Packets that bypass the switches carry the collision flag.
    header.collision = !header.resend;
  }
  const AtpMember::Slot slot =
      direct ? member_.to_server(header, transmit.server) : member_.to_switch(header);
  fill(transmit, slot.elements);
  member_.seal(slot, header);
  if (!probes) return;
  by_switch.check = header.check;
  const AtpMember::Slot copy = member_.to_switch(by_switch);
  std::memcpy(copy.elements, slot.elements, header.elements * sizeof(std::int32_t));
  member_.seal(copy, by_switch);
}

// The server may have the others' contributions, and then gives the sum back at once.
void AtpWorkerDriver::give(proto::AtpTransmit& transmit, Time now) {
  own_elements_.resize(transmit.header.elements);
  fill(transmit, own_elements_.data());
  own_server_->on_own(transmit.header, std::as_bytes(std::span(own_elements_)), now);
}

void AtpWorkerDriver::fill(proto::AtpTransmit& transmit, std::int32_t* elements) {
  Flight& of = flight(transmit.block.cookie);
  const AtpReduction& reduction = of.reduction;
  wire::AtpHeader& header = transmit.header;
  const std::byte* data = data_of(reduction, transmit.block);
  if (tensor::has_fixed_point(reduction.type)) {
    const std::size_t misfits =
        tensor::to_fixed_point(reduction.type, data, header.elements, header.elements,
                               {&header.exponent, 1}, contributions(), elements);
    // What does not fit an exponent that the worker chose is found by all ranks, and repeated.
    if (!transmit.block.scaled()) of.misfits += misfits;
  } else {
    std::memcpy(elements, data, header.elements * sizeof(std::int32_t));
  }
  header.check =
      member_.checker().word_of(header, std::as_bytes(std::span(elements, header.elements)));
}

void AtpWorkerDriver::place(const proto::AtpPlacement& placement,
                            std::span<const std::byte> elements) {
  const proto::AtpBlock& block = placement.block;
  const AtpReduction& reduction = flight(block.cookie).reduction;
  std::byte* data =
      reduction.data + static_cast<std::size_t>(block.first_element) * size_of(reduction.type);
  if (!tensor::has_fixed_point(reduction.type)) {
    std::memcpy(data, elements.data(), elements.size());
    return;
  }
  const tensor::BlockExponent exponent =
      block.scaled() ? placement.exponent : reduction.exponents[block.index];
  tensor::from_fixed_point(reduction.type, reinterpret_cast<const std::int32_t*>(elements.data()),
                           block.elements, block.elements, {&exponent, 1}, contributions(), data);
}

void AtpWorkerDriver::end(const proto::AtpOutcome& outcome) {
  Flight over = std::move(flight(outcome.cookie));
  flight(outcome.cookie).over = true;
  // Reductions may end before others that were started earlier.
  while (!flights_.empty() && flights_.front().over) {
    flights_.pop_front();
    ++first_flight_;
  }
  if (!outcome.ok()) {
    over.reduction.done(outcome.failure());
  } else if (outcome.saturated) {
    over.reduction.done(Error("a sum is beyond what 32 bits hold"));
  } else if (over.misfits > 0) {
    over.reduction.done(
        Error(fmt::format("{} elements do not fit the exponents agreed", over.misfits)));
  } else {
    over.reduction.done(ok_status());
  }
}

}  // namespace thalweg::net
