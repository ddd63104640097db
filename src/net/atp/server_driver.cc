#include "net/atp/server_driver.h"

#include <cstring>

#include "net/atp/worker_driver.h"
#include "tensor/saturating_add.h"

namespace thalweg::net {
namespace {

// An hour, because the server need not end anything: workers fail by the deadlines of their own
// operations, and the communicator notices dead ranks.
constexpr Duration kDeadline = Duration::milliseconds(3'600'000);

proto::AtpServerOptions server_options(const AtpNodeOptions& node) {
  proto::AtpServerOptions options;
  options.job = node.job;
  options.groups = atp_groups(node);
  options.servers = static_cast<std::uint32_t>(node.servers);
  options.index = node.server_apart ? 0 : static_cast<std::uint32_t>(node.rank);
  options.elements = node.elements;
  options.window = node.window;
  if (node.own_sums) options.seat = atp_seats(node)[options.index];
  options.keyed = node.key.has_value();
  options.repetitions = !node.server_apart;
  options.deadline = kDeadline;
  return options;
}

}  // namespace

AtpServerDriver::AtpServerDriver(AtpMember& member)
    : member_(member),
      server_(server_options(member.options())),
      path_(member.everyone(), member.sums_by_switch()),
      elements_(std::size_t{server_.slots()} * server_.options().elements) {}

void AtpServerDriver::on_packet(const wire::AtpHeader& header, std::span<const std::byte> packet,
                                bool by_switch, Time now) {
  ++packets_;
  bytes_ += packet.size();
  path_.on_gradient(by_switch, member_.ranks_of(header));
  const std::span<const std::byte> elements = wire::atp_payload(packet, header);
  // The workers send again what they get no sum of.
  if (!member_.checker().holds(header, elements)) {
    ++corrupt_;
    return;
  }
  add(header, elements, now);
}

void AtpServerDriver::on_own(const wire::AtpHeader& header, std::span<const std::byte> elements,
                             Time now) {
  add(header, elements, now);
}

void AtpServerDriver::add(const wire::AtpHeader& header, std::span<const std::byte> elements,
                          Time now) {
  now_ = now;
  const proto::AtpServerAction action = server_.on_gradient(header, now);
  switch (action.payload) {
    case proto::AtpServerAction::Payload::kNothing:
      break;
    case proto::AtpServerAction::Payload::kStore:
      std::memcpy(slot(action.slot), elements.data(), elements.size());
      break;
    case proto::AtpServerAction::Payload::kAdd:
      if (tensor::add_saturating(slot(action.slot), elements.data(), header.elements)) {
        server_.mark_saturated(action.slot);
      }
      break;
  }
  proto::AtpServerTransmit transmit;
  // After the packet that completes a sequence, the next transmit is its sum.
  if (action.completed && member_.options().on_sum && server_.poll_transmit(transmit)) {
    member_.options().on_sum(transmit.header, slot(transmit.slot));
    send(transmit);
  }
  pump();
}

void AtpServerDriver::pump() {
  proto::AtpServerTransmit transmit;
  while (server_.poll_transmit(transmit)) send(transmit);
}

void AtpServerDriver::put(const AtpMember::Slot& out, const proto::AtpServerTransmit& transmit) {
  if (transmit.header.elements > 0) {
    std::memcpy(out.elements, slot(transmit.slot), transmit.header.elements * sizeof(std::int32_t));
  }
  member_.seal(out, transmit.header);
}

void AtpServerDriver::send(const proto::AtpServerTransmit& transmit) {
  const wire::AtpHeader& header = transmit.header;
  proto::AtpWorkerSet receivers =
      header.kind == wire::AtpKind::kAbort ? member_.everyone() : member_.ranks_of(header);
  if (own_worker_ != nullptr) {
    const AtpPlace place = atp_place(member_.options());
    const auto own = proto::AtpWorkerSet::one(place.group, place.index);
    if (!(receivers & own).empty()) {
      const std::span sum(slot(transmit.slot), header.elements);
      own_worker_->on_own(header, std::as_bytes(sum), now_);
      receivers = receivers - own;
    }
  }
  const proto::AtpWorkerSet direct = path_.direct(receivers);
  if (direct != receivers) put(member_.to_switch(header), transmit);
  member_.for_each(direct, [&](std::size_t rank) { put(member_.to_rank(header, rank), transmit); });
}

}  // namespace thalweg::net
