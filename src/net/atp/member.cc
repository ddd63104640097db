#include "net/atp/member.h"

#include <algorithm>

#include "net/atp/job_message.h"
#include "net/system.h"

namespace thalweg {

AtpMember::AtpMember(const AtpNodeOptions& options, UdpSocket& socket) : options_(options) {
  for (const SocketAddress& shard : options.shards) {
    shards_.emplace_back(socket, std::vector{shard});
  }
  for (const SocketAddress& member : options.members) {
    members_.emplace_back(socket, std::vector{member});
  }
  if (options.server_apart) members_.emplace_back(socket, std::vector{*options.server_apart});
  if (options.key) {
    const std::size_t own =
        options.on_sum ? options.members.size() : static_cast<std::size_t>(options.rank);
    sealer_.emplace(*options.key, AtpOrigin{.member = static_cast<std::uint16_t>(own),
                                            .mark = static_cast<std::uint16_t>(random_number()),
                                            .first_count = random_number()});
    verifier_.emplace(*options.key);
  }
}

std::uint32_t AtpMember::everyone() const {
  return atp_all(static_cast<unsigned>(options_.members.size()));
}

AtpMember::Sender AtpMember::sender(const SocketAddress& from) const {
  if (std::ranges::find(options_.shards, from) != options_.shards.end()) return {.is_switch = true};
  if (from == options_.server_apart) return {.is_server = true};
  const auto member = std::ranges::find(options_.members, from);
  if (member == options_.members.end()) return {};
  const auto rank = static_cast<std::size_t>(member - options_.members.begin());
  const bool server = !options_.server_apart && rank < static_cast<std::size_t>(options_.servers);
  return {.is_server = server, .rank = rank};
}

bool AtpMember::read(std::span<const std::byte> packet, AtpHeader& header) {
  if (decode_atp_header(packet, header) != WireError::kNone) return false;
  if (header.job != options_.job || header.keyed != verifier_.has_value()) return false;
  return !verifier_ || verifier_->genuine(packet);
}

AtpMember::Slot AtpMember::fill(const AtpHeader& header, PacketTrain& train) {
  const std::span<std::byte> packet = train.add(atp_packet_size(header));
  encode_atp_header(header, packet);
  return {packet,
          reinterpret_cast<std::int32_t*>(packet.subspan(atp_overhead(header.keyed)).data())};
}

AtpMember::Slot AtpMember::to_switch(const AtpHeader& header) {
  return fill(header, shards_[shard_of(header.job, header.sequence, shards_.size())]);
}

AtpMember::Slot AtpMember::to_rank(const AtpHeader& header, std::size_t rank) {
  return fill(header, members_[rank]);
}

AtpMember::Slot AtpMember::to_server(const AtpHeader& header, std::size_t server) {
  return fill(header, options_.server_apart ? members_.back() : members_[server]);
}

void AtpMember::seal(const Slot& slot) {
  if (sealer_) sealer_->seal(slot.packet);
}

void AtpMember::flush() {
  for (PacketTrain& train : shards_) train.flush();
  for (PacketTrain& train : members_) train.flush();
}

}  // namespace thalweg
