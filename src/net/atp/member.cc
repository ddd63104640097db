#include "net/atp/member.h"

#include <algorithm>

#include "net/atp/job_message.h"
#include "net/io/system.h"

namespace thalweg::net {

std::vector<std::uint8_t> atp_groups(const AtpNodeOptions& options) {
  if (!options.groups.empty()) return options.groups;
  return {static_cast<std::uint8_t>(options.members.size())};
}

AtpPlace atp_place(const AtpNodeOptions& options) {
  AtpPlace place;
  int index = options.rank;
  for (const std::uint8_t size : atp_groups(options)) {
    if (index < size) break;
    index -= size;
    ++place.group;
  }
  place.index = static_cast<std::uint8_t>(index);
  return place;
}

AtpMember::AtpMember(const AtpNodeOptions& options, UdpSocket& socket)
    : options_(options), groups_(atp_groups(options)), checker_(groups_, options.checks) {
  for (const SocketAddress& shard : options.shards) {
    shards_.emplace_back(socket, std::vector{shard});
  }
  for (const SocketAddress& shard : options.server_shards) {
    server_shards_.emplace_back(socket, std::vector{shard});
  }
  for (const SocketAddress& member : options.members) {
    members_.emplace_back(socket, std::vector{member});
  }
  if (options.server_apart) members_.emplace_back(socket, std::vector{*options.server_apart});
  if (options.key) {
    const std::size_t own =
        options.on_sum ? options.members.size() : static_cast<std::size_t>(options.rank);
    sealer_.emplace(*options.key,
                    wire::AtpOrigin{.member = static_cast<std::uint16_t>(own),
                                    .mark = static_cast<std::uint16_t>(random_number()),
                                    .first_count = random_number()});
    verifier_.emplace(*options.key);
  }
}

std::uint32_t AtpMember::everyone() const {
  return wire::atp_all(static_cast<unsigned>(options_.members.size()));
}

std::uint32_t AtpMember::ranks_of(const wire::AtpHeader& header) const {
  std::uint32_t ranks = 0;
  unsigned first = 0;
  for (unsigned g = 0; g < groups_.size(); ++g) {
    const std::uint32_t all = wire::atp_all(groups_[g]);
    std::uint32_t of_group = g == header.group ? header.workers & all : 0;
    if ((header.groups & wire::atp_bit(g)) != 0) of_group = all;
    ranks |= of_group << first;
    first += groups_[g];
  }
  return ranks;
}

AtpMember::Sender AtpMember::sender(const SocketAddress& from) const {
  for (const auto* shards : {&options_.shards, &options_.server_shards}) {
    if (std::ranges::find(*shards, from) != shards->end()) return {.is_switch = true};
  }
  if (from == options_.server_apart) return {.is_server = true};
  const auto member = std::ranges::find(options_.members, from);
  if (member == options_.members.end()) return {};
  const auto rank = static_cast<std::size_t>(member - options_.members.begin());
  const bool server = !options_.server_apart && rank < static_cast<std::size_t>(options_.servers);
  return {.is_server = server, .rank = rank};
}

AtpMember::Read AtpMember::read(std::span<const std::byte> packet, wire::AtpHeader& header) {
  const wire::WireError error = wire::decode_atp_header(packet, header);
  if (error == wire::WireError::kChecksum) return Read::kCorrupt;
  if (error != wire::WireError::kNone) return Read::kRefused;
  if (header.job != options_.job || header.keyed != verifier_.has_value()) return Read::kRefused;
  return !verifier_ || verifier_->genuine(packet) ? Read::kTaken : Read::kRefused;
}

AtpMember::Slot AtpMember::fill(const wire::AtpHeader& header, PacketTrain& train) {
  const std::span<std::byte> packet = train.add(wire::atp_packet_size(header));
  return {packet,
          reinterpret_cast<std::int32_t*>(packet.subspan(wire::atp_overhead(header.keyed)).data())};
}

AtpMember::Slot AtpMember::to_switch(const wire::AtpHeader& header) {
  const bool up = header.kind == wire::AtpKind::kGradient || server_shards_.empty();
  std::vector<PacketTrain>& trains = up ? shards_ : server_shards_;
  return fill(header, trains[shard_of(header.job, header.sequence, trains.size())]);
}

AtpMember::Slot AtpMember::to_rank(const wire::AtpHeader& header, std::size_t rank) {
  return fill(header, members_[rank]);
}

AtpMember::Slot AtpMember::to_server(const wire::AtpHeader& header, std::size_t server) {
  return fill(header, options_.server_apart ? members_.back() : members_[server]);
}

void AtpMember::seal(const Slot& slot, const wire::AtpHeader& header) {
  wire::encode_atp_header(header, slot.packet);
  if (sealer_) sealer_->seal(slot.packet);
}

void AtpMember::flush() {
  for (PacketTrain& train : shards_) train.flush();
  for (PacketTrain& train : server_shards_) train.flush();
  for (PacketTrain& train : members_) train.flush();
}

}  // namespace thalweg::net
