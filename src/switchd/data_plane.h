// One shard's packets: bytes in, bytes out, no sockets. It decodes, checks that a packet comes from
// a member of its job, asks the aggregation stage (switch/aggregate.h) what to do, and moves the
// elements, which it owns.
//
// 1. Whatever arrives is answered by packets to members of its own job, or by a counted drop.
// 2. No job's packets touch the slots of another.
// 3. Nothing allocates after install().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "switch/aggregate.h"
#include "switchd/controller.h"
#include "wire/atp_packet.h"
#include "wire/atp_seal.h"

namespace thalweg {

class DataPlane {
 public:
  // Whom packets go to. Each gives the room for one packet, to be filled before the next call.
  class Output {
   public:
    virtual ~Output() = default;
    // To the server of the sequence, or the next switch on the way to it.
    [[nodiscard]] virtual std::span<std::byte> to_server(std::uint32_t job, std::uint64_t sequence,
                                                         std::size_t size) = 0;
    // To every worker of the job; or to one, if `worker` is its place in the job.
    [[nodiscard]] virtual std::span<std::byte> to_workers(std::uint32_t job,
                                                          std::optional<std::size_t> worker,
                                                          std::size_t size) = 0;
  };

  // Packets that came in one call, from one end: of `packet_size` bytes each but the last.
  struct Run {
    std::span<const std::byte> bytes;
    std::size_t packet_size = 0;
    bool marked = false;  // congestion experienced
  };

  struct Received {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
  };
  // Drops that the aggregation stage never sees.
  struct Refused {
    std::uint64_t foreign = 0;  // not from a member of the job with that role
    std::uint64_t keying = 0;   // no tag though the job has a key, or one though it has none
    std::uint64_t forged = 0;   // the tag is wrong
  };

  // `output` outlives it. `shard`: its number at this switch.
  DataPlane(const AggregateOptions& options, std::uint16_t shard, Output& output);

  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);

  void on_run(const Run& run, const SocketAddress& from, Time now);
  // Frees slots that nobody uses any more. To be called some times a second.
  void on_tick(Time now);

  [[nodiscard]] const AggregateTable& table() const { return table_; }
  // Of an end that some job has named; zeros if none has.
  [[nodiscard]] Received received_from(const SocketAddress& end) const;
  // Of an installed job.
  [[nodiscard]] const Refused& refused(std::uint32_t job) const { return jobs_.at(job).refused; }
  // Packets of no job: those that are not ATP's, and those of a job that is not here or from an end
  // that no job has named.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }
  [[nodiscard]] std::uint64_t strangers() const { return strangers_; }

 private:
  struct End {
    Received received;
    std::size_t users = 0;  // times that jobs name it
  };
  struct Job {
    AdmittedJob about;
    std::vector<const End*> workers;
    std::vector<const End*> servers;
    std::optional<AtpSealer> sealer;
    std::optional<AtpVerifier> verifier;
    Refused refused = {};
  };
  struct AddressHash {
    std::size_t operator()(const SocketAddress& address) const;
  };
  // What is known of the job of a run's last packet, mostly that of the next.
  struct Context {
    const End* end = nullptr;
    Job* job = nullptr;
    bool worker = false;
    bool server = false;
  };

  void on_packet(std::span<const std::byte> packet, Context& context, const Run& run, Time now);
  bool admit(std::span<const std::byte> packet, const AtpHeader& header, const Context& context);
  void act(const AggregateAction& action, AtpHeader& header, std::span<const std::byte> packet,
           Job& job);
  void emit(const AtpHeader& header, std::span<const std::byte> elements, Job& job);
  const End* use(const SocketAddress& address);
  void release(const SocketAddress& address);
  [[nodiscard]] std::int32_t* slot(std::uint32_t index) {
    return &elements_[std::size_t{index} * stride_];
  }

  Output& output_;
  std::uint16_t shard_;
  AggregateTable table_;
  std::size_t stride_;  // elements from slot to slot
  std::vector<std::int32_t> elements_;
  std::unordered_map<std::uint32_t, Job> jobs_;
  std::unordered_map<SocketAddress, End, AddressHash> ends_;
  std::uint64_t malformed_ = 0;
  std::uint64_t strangers_ = 0;
};

}  // namespace thalweg
