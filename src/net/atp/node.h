// One member of an ATP job, with one UDP socket and one thread. A member is either a rank, with a
// worker and, if it is among the first ranks, a parameter server; or a separate server that is not
// a rank and takes the sums for itself. The protocol is in proto/atp; this class moves bytes
// between tensors, packets and the server's slots.
//
// Reductions run in the order in which they are started, which must be the same on all ranks.
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
#include "net/io/address.h"
#include "proto/atp/paths.h"
#include "proto/atp/worker.h"
#include "tensor/fixed_point.h"
#include "wire/atp_packet.h"
#include "wire/authenticate.h"

namespace thalweg::net {

struct AtpNodeOptions {
  std::uint32_t job = 0;
  int rank = 0;
  int servers = 1;  // ranks 0 to servers - 1 are the servers
  // The address of a separate server, which is not a rank and replaces those; `servers` must be 1.
  std::optional<SocketAddress> server_apart = {};
  // If set, this node is the separate server: it has no worker, and `rank` is ignored. Called in
  // the node's thread once per sequence, with its sum and the header of its parameter packet. It
  // must not block.
  std::function<void(const wire::AtpHeader& header, const std::int32_t* sum)> on_sum = {};
  std::vector<SocketAddress> members;  // of all ranks, this one included; at most kMaxJobWorkers
  // The number of ranks in each group, up to 32, in the order of ranks. Each group has one
  // first-level switch (docs/switch.md, two levels). Empty: as few groups as hold all ranks.
  std::vector<std::uint8_t> groups = {};
  std::vector<SocketAddress> shards;  // of the switch, or of the group's; empty: there is no switch
  // The shards of the servers' switch if that is another one; sums are sent to it. Empty: `shards`.
  std::vector<SocketAddress> server_shards = {};
  std::optional<wire::JobKey> key;
  // Off: the check words of packets leave out the elements, so changed elements are not found. The
  // same on all members of the job.
  bool checks = true;
  // On: servers that are ranks add their own gradients themselves, and keep their own sums, so that
  // neither crosses a link. The same on all members of the job, and at its switches
  // (JobRequest::own_sums); needs own_sums_possible().
  bool own_sums = false;
  std::uint32_t elements = 256;    // in a packet
  std::uint32_t window = 1024;     // packets in flight; a power of two
  std::uint32_t switch_paths = 1;  // AtpWorkerOptions::paths
  proto::AtpPathOptions paths;
};

// A sum over all ranks, in place.
struct AtpReduction {
  DType type = DType::kFloat32;  // int32, or a type that converts to fixed point
  std::byte* data = nullptr;     // the node uses it until `done` is called
  std::int64_t elements = 0;     // above 0
  // One exponent per block of AtpNodeOptions::elements; all ranks have agreed on them. Empty: the
  // ranks find them on the way (proto/atp/exponents.h), or, for int32, there are none.
  std::vector<tensor::BlockExponent> exponents = {};
  // Without exponents: what the sum is for, the same on all ranks. Calls learn the exponents of
  // their blocks from earlier ones of the same size, type and purpose.
  std::uint8_t purpose = 0;
  Duration deadline = {};
  // Called once, in the node's thread. It must not block.
  std::function<void(Status)> done = {};
};

class AtpNode {
 public:
  struct Counters {
    proto::AtpWorkerCounters worker;
    std::uint64_t server_packets = 0;  // gradient packets that reached this node's server
    std::uint64_t server_bytes = 0;
    std::uint64_t sent_direct = 0;  // gradient packets sent straight to a server
    std::uint64_t refused = 0;      // packets that were malformed, forged or from unknown senders
    std::uint64_t corrupt = 0;      // packets that were changed on their way, or before
    bool switch_gone = false;
  };

  // Makes a node with a socket at this address, with any port.
  [[nodiscard]] static Result<std::unique_ptr<AtpNode>> bind(const SocketAddress& local);
  ~AtpNode();
  AtpNode(const AtpNode&) = delete;
  AtpNode& operator=(const AtpNode&) = delete;

  [[nodiscard]] SocketAddress address() const;
  // Joins the job and starts the thread. Call it once, before the methods below.
  [[nodiscard]] Status join(const AtpNodeOptions& options);

  // The ranks go over to another job of the same members; any thread may call these. join_next():
  // the node is a member of the next job, too, and its server there answers. use_next(): reductions
  // that are started from now on are those of the next job. leave_earlier(): when all ranks have
  // ended the reductions of earlier jobs, the node leaves these.
  [[nodiscard]] Status join_next(const AtpNodeOptions& options);
  void use_next();
  void leave_earlier();

  // Starts a reduction; any thread may call it, but not on a separate server. Returns false if the
  // node is ending; `done` is then not called.
  bool reduce(AtpReduction reduction);
  // Fails all reductions in flight, and all later ones, with this cause.
  void fail(const Error& cause);
  [[nodiscard]] Counters counters();

 private:
  class Core;
  explicit AtpNode(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg::net
