// What the worker and the server of one ATP node share: the addresses of all members, and a train
// of packets to each. Used by the node's thread only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "net/atp/node.h"
#include "net/atp/packet_train.h"
#include "net/io/address_hash.h"
#include "net/io/udp_socket.h"
#include "proto/atp/check.h"
#include "proto/atp/worker_set.h"
#include "wire/atp_packet.h"
#include "wire/atp_seal.h"

namespace thalweg::net {

// The number of ranks in each group of the job.
[[nodiscard]] std::vector<std::uint8_t> atp_groups(const AtpNodeOptions& options);
// The group of a rank, and the rank's place within it.
struct AtpPlace {
  std::uint8_t group = 0;
  std::uint8_t index = 0;
};
[[nodiscard]] AtpPlace atp_place(const AtpNodeOptions& options);
// By server: its place if it adds its own gradients itself; empty if servers do not.
[[nodiscard]] std::vector<std::optional<proto::AtpSeat>> atp_seats(const AtpNodeOptions& options);
// Whether the first `servers` ranks can: each must have another rank in its group.
[[nodiscard]] bool own_sums_possible(std::span<const std::uint8_t> groups, int servers);
// Groups for ranks that all send to one switch, or to none: as few as hold them, of about the same
// size.
[[nodiscard]] std::vector<std::uint8_t> equal_atp_groups(std::size_t ranks);

class AtpMember {
 public:
  // `socket` outlives this.
  AtpMember(const AtpNodeOptions& options, UdpSocket& socket);

  [[nodiscard]] const AtpNodeOptions& options() const { return options_; }
  [[nodiscard]] bool has_switch() const { return !options_.shards.empty(); }
  // Whether a server at this node may send its sums by a switch.
  [[nodiscard]] bool sums_by_switch() const { return !sum_shards().empty(); }
  // The set of all ranks.
  [[nodiscard]] proto::AtpWorkerSet everyone() const { return proto::AtpWorkerSet::all(groups_); }
  // The set of ranks whose contributions a gradient holds, or that a sum is sent to.
  [[nodiscard]] proto::AtpWorkerSet ranks_of(const wire::AtpHeader& header) const {
    return proto::AtpWorkerSet::of(header, groups_);
  }
  // Calls `visit` with each rank of the set.
  template <class Visit>
  void for_each(const proto::AtpWorkerSet& ranks, Visit visit) const {
    std::size_t first = 0;
    for (std::size_t g = 0; g < groups_.size(); first += groups_[g++]) {
      for (std::uint32_t left = ranks.of_group(g); left != 0; left &= left - 1) {
        visit(first + static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
  }

  // The sender of a packet: a switch, a rank, a server (which may be a rank), or unknown.
  struct Sender {
    bool is_switch = false;
    bool is_server = false;
    std::optional<std::size_t> rank = {};
    proto::AtpWorkerSet alone = {};  // the set of that rank
    [[nodiscard]] bool known() const { return is_switch || is_server || rank.has_value(); }
  };
  [[nodiscard]] const Sender& sender(const SocketAddress& from) const;
  enum class Read : std::uint8_t {
    kTaken,
    kRefused,  // dropped: malformed, of another job or forged
    kCorrupt,  // dropped: its header changed on its way
  };
  // Decodes a packet and checks its header, job and tag.
  [[nodiscard]] Read read(std::span<const std::byte> packet, wire::AtpHeader& header);
  [[nodiscard]] const proto::AtpChecker& checker() const { return checker_; }

  // Room for a packet. Write the elements, then call seal() with the header before the next packet.
  struct Slot {
    std::span<std::byte> packet;
    std::int32_t* elements = nullptr;
  };
  // Adds a packet to the right train: a gradient goes to this rank's switch, a sum to the servers'.
  [[nodiscard]] Slot to_switch(const wire::AtpHeader& header);
  [[nodiscard]] Slot to_rank(const wire::AtpHeader& header, std::size_t rank);
  [[nodiscard]] Slot to_server(const wire::AtpHeader& header, std::size_t server);
  void seal(const Slot& slot, const wire::AtpHeader& header);
  void flush();

 private:
  [[nodiscard]] const std::vector<SocketAddress>& sum_shards() const {
    return options_.server_shards.empty() ? options_.shards : options_.server_shards;
  }
  void know_senders();
  [[nodiscard]] static Slot fill(const wire::AtpHeader& header, PacketTrain& train);

  AtpNodeOptions options_;
  std::vector<std::uint8_t> groups_;  // number of ranks in each
  proto::AtpChecker checker_;
  std::unordered_map<SocketAddress, Sender, SocketAddressHash> senders_;
  std::vector<PacketTrain> shards_;
  std::vector<PacketTrain> server_shards_;
  std::vector<PacketTrain> members_;  // the ranks, then the separate server
  std::optional<wire::AtpSealer> sealer_;
  std::optional<wire::AtpVerifier> verifier_;
};

}  // namespace thalweg::net
