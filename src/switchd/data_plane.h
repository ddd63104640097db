// DataPlane: processes the packets of one shard, from bytes to bytes, without sockets. It decodes
// each packet, checks that it comes from a member of its job, asks the aggregation stage
// (switch/aggregation/aggregate.h) what to do, and moves the elements, which it owns.
//
// Invariants:
// 1. A packet causes at most one packet to a server of its own job or to each of its workers, or a
//    counted drop, and besides at most one small report to its sender. A packet from an address of
//    the switch itself causes none, so no packet circles.
// 2. No job's packets touch the slots of another job.
// 3. Nothing allocates after install().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "net/io/address_hash.h"
#include "switch/aggregation/aggregate.h"
#include "switchd/controller.h"
#include "switchd/own_addresses.h"
#include "wire/atp_packet.h"
#include "wire/atp_seal.h"

namespace thalweg::switchd {

class DataPlane {
 public:
  // Sends the packets. Each call returns room for one packet, which the caller fills before its
  // next call.
  class Output {
   public:
    virtual ~Output() = default;
    // To the server of the sequence, or to the next switch before it. `path`: by which path, to an
    // end that has several.
    [[nodiscard]] virtual std::span<std::byte> to_server(std::uint32_t job, std::uint64_t sequence,
                                                         std::uint32_t path, std::size_t size) = 0;
    // Workers of a job, by their index in it.
    struct Receivers {
      std::optional<std::size_t> only = {};    // this one; none: all
      std::optional<std::size_t> except = {};  // all but this one
    };
    [[nodiscard]] virtual std::span<std::byte> to_workers(std::uint32_t job,
                                                          const Receivers& receivers,
                                                          std::uint32_t path, std::size_t size) = 0;
  };

  // Packets that one receive call returned, all from one sender. Each has `packet_size` bytes; the
  // last may be shorter.
  struct Run {
    std::span<const std::byte> bytes;
    std::size_t packet_size = 0;
    bool marked = false;  // "congestion experienced" (ECN)
  };

  struct Received {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
  };
  // Packets dropped before the aggregation stage sees them.
  struct Refused {
    std::uint64_t foreign = 0;  // the sender is not a member of the job in that role
    std::uint64_t keying = 0;   // no tag though the job has a key, or one though it has none
    std::uint64_t forged = 0;   // the tag is wrong
  };

  // `output` must outlive the plane. `shard`: the shard's number at this switch.
  DataPlane(const switches::AggregateOptions& options, std::uint16_t shard, Output& output);

  // Packets that seem to come from these addresses are dropped from now on.
  void know_own(OwnAddresses own) { own_ = std::move(own); }
  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);

  void on_run(const Run& run, const net::SocketAddress& from, Time now);
  // Frees slots whose lifetime has passed. The caller calls it several times per second.
  void on_tick(Time now);

  [[nodiscard]] const switches::AggregateTable& table() const { return table_; }
  // What arrived from this address alone; zeros if no job names it.
  [[nodiscard]] Received received_from(const net::SocketAddress& end) const;
  // Requires an installed job.
  [[nodiscard]] const Refused& refused(std::uint32_t job) const { return jobs_.at(job).refused; }
  // Dropped packets that belong to no job: those that are not ATP packets (malformed), and those of
  // an unknown job or from an address that no job names (strangers), and those from an address of
  // the switch itself (looped).
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }
  [[nodiscard]] std::uint64_t strangers() const { return strangers_; }
  [[nodiscard]] std::uint64_t looped() const { return looped_; }
  // Dropped packets whose headers were changed on their way; their jobs are not known.
  [[nodiscard]] std::uint64_t corrupt() const { return corrupt_; }

 private:
  // An address from which workers or servers of one job or several send.
  struct End {
    Received received;
    std::size_t users = 0;  // how many times jobs name it
  };
  // Who of a job sends from an address.
  struct Member {
    std::optional<std::size_t> worker;    // its index in the job
    std::optional<std::uint32_t> server;  // the same, among the servers
  };
  struct Job {
    AdmittedJob about;
    std::unordered_map<const End*, Member> members;
    std::uint32_t paths = 1;      // to the ends that have several
    std::uint32_t next_path = 0;  // of the next packet that is sent again
    std::optional<wire::AtpSealer> sealer;
    std::optional<wire::AtpVerifier> verifier;
    Refused refused = {};
  };
  // The sender and the job of the last packet of a run, kept because the next packet mostly has the
  // same.
  struct Context {
    const End* end = nullptr;
    Job* job = nullptr;
    Member member = {};  // who of the job the sender is
  };

  void on_packet(std::span<const std::byte> packet, Context& context, const Run& run, Time now);
  bool admit(std::span<const std::byte> packet, const wire::AtpHeader& header,
             const Context& context);
  // Moves the elements into the slot, and returns those that go on; none if the packet ends here.
  std::optional<std::span<const std::byte>> act(const switches::AggregateAction& action,
                                                wire::AtpHeader& header,
                                                std::span<const std::byte> elements);
  void report(const wire::AtpHeader& missing, const Context& context);
  void emit(const wire::AtpHeader& header, std::span<const std::byte> elements,
            const Context& context);
  // Sends a result to those workers of the job that its header names.
  void to_receivers(const wire::AtpHeader& header, std::span<const std::byte> elements,
                    const Context& context);
  // The server that sent the packet, if it is a worker that adds its own gradients itself.
  [[nodiscard]] static std::optional<switches::AggregateTable::OwnServer> own_server(
      const Context& context);
  static void fill(std::span<std::byte> packet, const wire::AtpHeader& header,
                   std::span<const std::byte> elements, Job& job);
  // The path of a packet to an end that has several. What is sent again takes each in turn, since
  // the one before may be dead.
  [[nodiscard]] static std::uint32_t path_of(const wire::AtpHeader& header, Job& job);
  // Counts all addresses of this end as used once more; release() is the reverse.
  std::vector<const End*> use(const AdmittedJob& job, const net::SocketAddress& end);
  void release(const AdmittedJob& job, const net::SocketAddress& end);
  [[nodiscard]] std::int32_t* slot(std::uint32_t index) {
    return &elements_[std::size_t{index} * stride_];
  }

  Output& output_;
  std::uint16_t shard_;
  OwnAddresses own_;
  switches::AggregateTable table_;
  std::size_t stride_;  // elements per slot
  std::vector<std::int32_t> elements_;
  std::unordered_map<std::uint32_t, Job> jobs_;
  std::unordered_map<net::SocketAddress, End, net::SocketAddressHash> ends_;
  std::uint64_t malformed_ = 0;
  std::uint64_t strangers_ = 0;
  std::uint64_t looped_ = 0;
  std::uint64_t corrupt_ = 0;
};

}  // namespace thalweg::switchd
