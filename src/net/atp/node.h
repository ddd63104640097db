// One member's part of an ATP job on real sockets, on one UDP socket and one thread: a rank with
// its worker, and a parameter server if it is among the first ranks; or a server apart, that is no
// rank and takes the sums for itself. The protocol is proto/atp's; this moves bytes between
// tensors, packets and the server's slots.
//
// Reductions run in the order in which they are given, which must be the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "base/units.h"
#include "net/address.h"
#include "net/atp/paths.h"
#include "proto/atp/worker.h"
#include "tensor/fixed_point.h"
#include "wire/atp_packet.h"
#include "wire/authenticate.h"

namespace thalweg {

struct AtpNodeOptions {
  std::uint32_t job = 0;
  int rank = 0;
  int servers = 1;  // the ranks below it
  // A server that is no rank, in place of those; `servers` must be 1.
  std::optional<SocketAddress> server_apart = {};
  // This node is the server apart, and has no worker; `rank` means nothing. Called in the node's
  // thread, not to block, once a sequence with its sum: the header is that of its parameter packet.
  std::function<void(const AtpHeader& header, const std::int32_t* sum)> on_sum = {};
  std::vector<SocketAddress> members;  // of all ranks, this one's too: at most 32
  // How many of the ranks, in their order, are in each group: behind a first switch of their own
  // (docs/switch.md, two levels). Empty: all in one. Nothing but tests sets this and server_shards:
  // a communicator has one level.
  std::vector<std::uint8_t> groups = {};
  std::vector<SocketAddress> shards;  // of the switch, or the group's; none: without one
  // Of the servers' switch where that is another: sums leave by it. Empty: `shards`.
  std::vector<SocketAddress> server_shards = {};
  std::optional<JobKey> key;
  std::uint32_t elements = 256;  // of a packet
  std::uint32_t window = 1024;   // packets in flight; a power of two
  AtpPathOptions paths;
};

// A sum over all ranks, in place.
struct AtpReduction {
  DType type = DType::kFloat32;  // int32, or one that has fixed point
  std::byte* data = nullptr;     // the node's until `done` is called
  std::int64_t elements = 0;     // above 0
  // Of blocks of AtpNodeOptions::elements, agreed among all ranks; empty for int32.
  std::vector<BlockExponent> exponents = {};
  Duration deadline = {};
  // Called once, in the node's thread. Not to block.
  std::function<void(Status)> done = {};
};

class AtpNode {
 public:
  struct Counters {
    AtpWorkerCounters worker;
    std::uint64_t server_packets = 0;  // gradients that reached the server here
    std::uint64_t server_bytes = 0;
    std::uint64_t sent_direct = 0;  // gradients that passed the switch by
    std::uint64_t refused = 0;      // malformed, forged, from strangers
    bool switch_gone = false;
  };

  // A socket at this address, with any port.
  [[nodiscard]] static Result<std::unique_ptr<AtpNode>> bind(const SocketAddress& local);
  ~AtpNode();
  AtpNode(const AtpNode&) = delete;
  AtpNode& operator=(const AtpNode&) = delete;

  [[nodiscard]] SocketAddress address() const;
  // Once, before anything else.
  [[nodiscard]] Status join(const AtpNodeOptions& options);

  // From any thread; not of a server apart. False: the node is ending, and `done` is not called.
  bool reduce(AtpReduction reduction);
  // What is in flight fails with this cause, and so does all that comes later.
  void fail(const std::string& cause);
  [[nodiscard]] Counters counters();

 private:
  class Core;
  explicit AtpNode(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
