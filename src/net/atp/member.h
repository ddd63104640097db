// What a worker and a server of an ATP job share at one rank: who is who, and trains of packets to
// each of them. For the node's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/atp/node.h"
#include "net/atp/packet_train.h"
#include "net/udp_socket.h"
#include "wire/atp_packet.h"
#include "wire/atp_seal.h"

namespace thalweg {

// How many ranks each group of a job has; and the group of a rank, with its place there.
[[nodiscard]] std::vector<std::uint8_t> atp_groups(const AtpNodeOptions& options);
struct AtpPlace {
  std::uint8_t group = 0;
  std::uint8_t index = 0;
};
[[nodiscard]] AtpPlace atp_place(const AtpNodeOptions& options);

class AtpMember {
 public:
  // The socket outlives it.
  AtpMember(const AtpNodeOptions& options, UdpSocket& socket);

  [[nodiscard]] const AtpNodeOptions& options() const { return options_; }
  [[nodiscard]] bool has_switch() const { return !options_.shards.empty(); }
  // Whether the sums of a server here may go by a switch.
  [[nodiscard]] bool sums_by_switch() const { return !sum_shards().empty(); }
  [[nodiscard]] std::uint32_t everyone() const;  // the set of all ranks
  // The set of ranks whose contributions a gradient holds, or whom a sum is for.
  [[nodiscard]] std::uint32_t ranks_of(const AtpHeader& header) const;

  // Who sends: the switch, a rank, a server (which may be a rank), or a stranger.
  struct Sender {
    bool is_switch = false;
    bool is_server = false;
    std::optional<std::size_t> rank = {};
    [[nodiscard]] bool known() const { return is_switch || is_server || rank.has_value(); }
  };
  [[nodiscard]] Sender sender(const SocketAddress& from) const;
  // Decodes and proves a packet. False: drop it.
  [[nodiscard]] bool read(std::span<const std::byte> packet, AtpHeader& header);

  // Room for the elements of a packet, whose header is written; seal() when they are there.
  struct Slot {
    std::span<std::byte> packet;
    std::int32_t* elements = nullptr;
  };
  // A gradient to the rank's switch, a sum to the server's.
  [[nodiscard]] Slot to_switch(const AtpHeader& header);
  [[nodiscard]] Slot to_rank(const AtpHeader& header, std::size_t rank);
  [[nodiscard]] Slot to_server(const AtpHeader& header, std::size_t server);
  void seal(const Slot& slot);
  void flush();

 private:
  [[nodiscard]] const std::vector<SocketAddress>& sum_shards() const {
    return options_.server_shards.empty() ? options_.shards : options_.server_shards;
  }
  [[nodiscard]] static Slot fill(const AtpHeader& header, PacketTrain& train);

  AtpNodeOptions options_;
  std::vector<std::uint8_t> groups_;  // ranks of each
  std::vector<PacketTrain> shards_;
  std::vector<PacketTrain> server_shards_;
  std::vector<PacketTrain> members_;  // the ranks, then the server apart
  std::optional<AtpSealer> sealer_;
  std::optional<AtpVerifier> verifier_;
};

}  // namespace thalweg
