#include "net/atp/server_driver.h"

#include <bit>
#include <cstring>

#include "tensor/saturating_add.h"

namespace thalweg {
namespace {

// Workers fail by the deadlines of their own operations, and a dead rank by the communicator.
constexpr Duration kDeadline = Duration::milliseconds(3'600'000);

AtpServerOptions server_options(const AtpNodeOptions& node) {
  AtpServerOptions options;
  options.job = node.job;
  options.groups = atp_groups(node);
  options.servers = static_cast<std::uint32_t>(node.servers);
  options.index = node.server_apart ? 0 : static_cast<std::uint32_t>(node.rank);
  options.elements = node.elements;
  options.window = node.window;
  options.keyed = node.key.has_value();
  options.deadline = kDeadline;
  return options;
}

}  // namespace

AtpServerDriver::AtpServerDriver(AtpMember& member)
    : member_(member),
      server_(server_options(member.options())),
      path_(member.everyone(), member.sums_by_switch()),
      elements_(std::size_t{server_.slots()} * server_.options().elements) {}

void AtpServerDriver::on_packet(const AtpHeader& header, std::span<const std::byte> packet,
                                bool by_switch, Time now) {
  ++packets_;
  bytes_ += packet.size();
  path_.on_gradient(by_switch, member_.ranks_of(header));
  const AtpServerAction action = server_.on_gradient(header, now);
  const std::span<const std::byte> elements = atp_payload(packet, header);
  switch (action.payload) {
    case AtpServerAction::Payload::kNothing:
      break;
    case AtpServerAction::Payload::kStore:
      std::memcpy(slot(action.slot), elements.data(), elements.size());
      break;
    case AtpServerAction::Payload::kAdd:
      if (add_saturating(slot(action.slot), elements.data(), header.elements)) {
        server_.mark_saturated(action.slot);
      }
      break;
  }
  AtpServerTransmit transmit;
  // What completes a sequence is followed by nothing but its sum.
  if (action.completed && member_.options().on_sum && server_.poll_transmit(transmit)) {
    member_.options().on_sum(transmit.header, slot(transmit.slot));
    send(transmit);
  }
  pump();
}

void AtpServerDriver::pump() {
  AtpServerTransmit transmit;
  while (server_.poll_transmit(transmit)) send(transmit);
}

void AtpServerDriver::put(const AtpMember::Slot& out, const AtpServerTransmit& transmit) {
  if (transmit.header.elements > 0) {
    std::memcpy(out.elements, slot(transmit.slot), transmit.header.elements * sizeof(std::int32_t));
  }
  member_.seal(out);
}

void AtpServerDriver::send(const AtpServerTransmit& transmit) {
  const AtpHeader& header = transmit.header;
  const std::uint32_t receivers =
      header.kind == AtpKind::kAbort ? member_.everyone() : member_.ranks_of(header);
  const std::uint32_t direct = path_.direct(receivers);
  if (direct != receivers) put(member_.to_switch(header), transmit);
  for (std::uint32_t left = direct; left != 0; left &= left - 1) {
    put(member_.to_rank(header, static_cast<std::size_t>(std::countr_zero(left))), transmit);
  }
}

}  // namespace thalweg
