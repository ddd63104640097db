#include "net/atp/worker_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/udp_socket.h"

namespace thalweg {
namespace {

// So that arrivals are not left waiting for long.
constexpr int kPacketsPerPump = 2048;

std::span<const BlockExponent> exponent_of(const AtpReduction& reduction, std::int64_t element,
                                           std::uint32_t block) {
  return std::span(reduction.exponents).subspan(static_cast<std::size_t>(element) / block, 1);
}

}  // namespace

AtpWorkerOptions worker_options(const AtpNodeOptions& node) {
  AtpWorkerOptions options;
  options.job = node.job;
  const std::vector<std::uint8_t> groups = atp_groups(node);
  const AtpPlace place = atp_place(node);
  options.group = place.group;
  options.index = place.index;
  options.fan_in = groups[place.group];
  options.group_count = static_cast<std::uint8_t>(groups.size());
  options.servers = static_cast<std::uint32_t>(node.servers);
  options.elements = node.elements;
  options.keyed = node.key.has_value();
  options.window = node.window;
  // Ends are processes that share cores: what is late is mostly not lost.
  options.recovery.initial = Duration::milliseconds(100);
  options.recovery.least = Duration::milliseconds(30);
  // Shards send runs of a server's sums, each in its own time.
  if (node.shards.size() > 1) {
    // A hole must be found before the window stands still.
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
      path_(member.options().paths, member.has_switch()) {}

void AtpWorkerDriver::start(AtpReduction reduction, Time now) {
  if (worker_.idle()) path_.on_start(now);
  const auto started = worker_.start({.elements = reduction.elements,
                                      .deadline = reduction.deadline,
                                      .cookie = first_flight_ + flights_.size()},
                                     now);
  if (!started.ok()) {
    reduction.done(started.error());
    return;
  }
  flights_.push_back({std::move(reduction)});
}

void AtpWorkerDriver::on_packet(const AtpHeader& header, std::span<const std::byte> packet,
                                bool by_switch, Time now) {
  if (header.kind == AtpKind::kAbort) {
    worker_.on_abort(header, now);
    return;
  }
  path_.on_answer(by_switch, now);
  const AtpPlacement placement = worker_.on_parameter(header, now);
  if (placement.verdict == AtpPlacement::Verdict::kPlace) {
    place(placement.block, atp_payload(packet, header));
  }
}

void AtpWorkerDriver::fail(const std::string& cause, Time now) { worker_.fail(cause, now); }

bool AtpWorkerDriver::pump(Time now) {
  AtpOutcome outcome;
  while (worker_.poll_event(outcome)) end(outcome);
  AtpTransmit transmit;
  for (int i = 0; i < kPacketsPerPump; ++i) {
    if (!worker_.poll_transmit(now, transmit)) return true;
    send(transmit, now);
  }
  return !worker_.ready();
}

void AtpWorkerDriver::send(AtpTransmit& transmit, Time now) {
  Flight& of = flight(transmit.block.cookie);
  const AtpReduction& reduction = of.reduction;
  const std::byte* data = reduction.data + static_cast<std::size_t>(transmit.block.first_element) *
                                               size_of(reduction.type);
  AtpHeader& header = transmit.header;
  const bool fixed = has_fixed_point(reduction.type);
  const std::uint32_t block = member_.options().elements;
  if (fixed) header.exponent = exponent_of(reduction, transmit.block.first_element, block)[0];
  const bool direct = path_.direct(header.resend, now);
  if (direct) {
    ++sent_direct_;
    header.level = kAtpServerLevel;
    // What passes the switches by says so.
    header.collision = !header.resend;
  }
  const AtpMember::Slot slot =
      direct ? member_.to_server(header, transmit.server) : member_.to_switch(header);
  if (fixed) {
    of.misfits += to_fixed_point(reduction.type, data, header.elements, block,
                                 exponent_of(reduction, transmit.block.first_element, block),
                                 contributions(), slot.elements);
  } else {
    std::memcpy(slot.elements, data, header.elements * sizeof(std::int32_t));
  }
  member_.seal(slot);
}

void AtpWorkerDriver::place(const AtpBlock& block, std::span<const std::byte> elements) {
  const AtpReduction& reduction = flight(block.cookie).reduction;
  std::byte* data =
      reduction.data + static_cast<std::size_t>(block.first_element) * size_of(reduction.type);
  if (!has_fixed_point(reduction.type)) {
    std::memcpy(data, elements.data(), elements.size());
    return;
  }
  const std::uint32_t size = member_.options().elements;
  from_fixed_point(reduction.type, reinterpret_cast<const std::int32_t*>(elements.data()),
                   block.elements, size, exponent_of(reduction, block.first_element, size),
                   contributions(), data);
}

void AtpWorkerDriver::end(const AtpOutcome& outcome) {
  Flight over = std::move(flight(outcome.cookie));
  flight(outcome.cookie).over = true;
  // Tensors may end before those that were started earlier.
  while (!flights_.empty() && flights_.front().over) {
    flights_.pop_front();
    ++first_flight_;
  }
  if (!outcome.ok()) {
    over.reduction.done(Error(outcome.error));
  } else if (outcome.saturated) {
    over.reduction.done(Error("a sum is beyond what 32 bits hold"));
  } else if (over.misfits > 0) {
    over.reduction.done(
        Error(fmt::format("{} elements do not fit the exponents agreed", over.misfits)));
  } else {
    over.reduction.done(ok_status());
  }
}

}  // namespace thalweg
