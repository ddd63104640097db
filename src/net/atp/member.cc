#include "net/atp/member.h"

#include <algorithm>

#include "net/atp/job_message.h"
#include "net/io/system.h"

namespace thalweg::net {

std::vector<std::uint8_t> atp_groups(const AtpNodeOptions& options) {
  if (!options.groups.empty()) return options.groups;
  return equal_atp_groups(options.members.size());
}

namespace {

AtpPlace place_of(std::size_t rank, std::span<const std::uint8_t> groups) {
  AtpPlace place;
  for (const std::uint8_t size : groups) {
    if (rank < size) break;
    rank -= size;
    ++place.group;
  }
  place.index = static_cast<std::uint8_t>(rank);
  return place;
}

}  // namespace

AtpPlace atp_place(const AtpNodeOptions& options) {
  return place_of(static_cast<std::size_t>(options.rank), atp_groups(options));
}

std::vector<std::optional<proto::AtpSeat>> atp_seats(const AtpNodeOptions& options) {
  std::vector<std::optional<proto::AtpSeat>> seats;
  if (!options.own_sums) return seats;
  const std::vector<std::uint8_t> groups = atp_groups(options);
  for (int server = 0; server < options.servers; ++server) {
    const AtpPlace place = place_of(static_cast<std::size_t>(server), groups);
    seats.emplace_back(proto::AtpSeat{place.group, place.index});
  }
  return seats;
}

bool own_sums_possible(std::span<const std::uint8_t> groups, int servers) {
  for (const std::uint8_t size : groups) {
    if (servers <= 0) break;
    if (size < 2) return false;
    servers -= size;
  }
  return true;
}

std::vector<std::uint8_t> equal_atp_groups(std::size_t ranks) {
  constexpr std::size_t kMost = wire::kAtpMostWorkersPerGroup;
  const std::size_t count = std::max<std::size_t>((ranks + kMost - 1) / kMost, 1);
  std::vector<std::uint8_t> groups;
  for (std::size_t g = 0; g < count; ++g) {
    groups.push_back(static_cast<std::uint8_t>(ranks / count + (g < ranks % count ? 1 : 0)));
  }
  return groups;
}

AtpMember::AtpMember(const AtpNodeOptions& options, UdpSocket& socket)
    : options_(options),
      groups_(atp_groups(options)),
      checker_(groups_, options.checks, atp_seats(options)) {
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
  know_senders();
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

void AtpMember::know_senders() {
  for (std::size_t rank = 0; rank < options_.members.size(); ++rank) {
    const AtpPlace place = place_of(rank, groups_);
    Sender& sender = senders_[options_.members[rank]];
    sender.is_server = !options_.server_apart && rank < static_cast<std::size_t>(options_.servers);
    sender.rank = rank;
    sender.alone = proto::AtpWorkerSet::one(place.group, place.index);
  }
  if (options_.server_apart) senders_[*options_.server_apart] = {.is_server = true};
  for (const auto* shards : {&options_.shards, &options_.server_shards}) {
    for (const SocketAddress& shard : *shards) senders_[shard] = {.is_switch = true};
  }
}

const AtpMember::Sender& AtpMember::sender(const SocketAddress& from) const {
  static const Sender unknown;
  const auto found = senders_.find(from);
  return found == senders_.end() ? unknown : found->second;
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
