// DlcpOperation: a collective over DLCP. Every chunk is one transfer, or one per way if there are
// several ways, and may lose segments within the bound. Segments are forwarded as they arrive
// (exec/segment_executor.h).
//
// It runs by itself: transfers end in the endpoints' threads, which take its owner's mutex. The
// owner is told when all is done, and when a transfer fails.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/endpoint.h>

#include "base/segment_tag.h"
#include "exec/segment_executor.h"
#include "net/group/operation/planned_operation.h"

namespace thalweg::net {

class DlcpOperation final : public PlannedOperation,
                            public std::enable_shared_from_this<DlcpOperation> {
 public:
  // Packets to the peers take different numbers of bytes: chunks are not forwarded by segments.
  static constexpr std::int64_t kWholeChunks = std::int64_t{1} << 60;

  struct Options {
    double reduce_bound = 0;  // loss bound of transfers that are added up
    double copy_bound = 0;    // loss bound of transfers of results
    // Segments are what fits a packet, and have counts if some may be lost.
    exec::SegmentExecutor::Layout layout = {};
    std::uint8_t queue = 1;  // queue of its packets
  };
  // The engine. It is called with its mutex held.
  class Owner {
   public:
    virtual ~Owner() = default;
    [[nodiscard]] virtual std::mutex& mutex() = 0;
    // Everything has arrived and left: the operation ends.
    virtual void on_done(DlcpOperation& op) = 0;
    // A transfer from or to the rank has failed.
    virtual void on_lost(DlcpOperation& op, Rank rank, const Error& why) = 0;
  };

  // `ways`: for each of plan->peers(), one peer per way.
  DlcpOperation(const Options& options, std::vector<std::vector<Peer>> ways)
      : PlannedOperation(true), options_(options), ways_(std::move(ways)) {}

  // Looks at the tensor. Call first, while no other thread can see the operation: once it has begun
  // it may fail, and then the tensor is the caller's again.
  void prepare();
  // Begins the run, with memory from `blocks`. Requires the owner's mutex.
  void begin(exec::BlockSource blocks);
  // Starts the transfers. Requires that the caller does not hold the owner's mutex, because they
  // may be over at once.
  void run(const std::shared_ptr<Owner>& owner);
  // Ends the transfers; they keep the operation's memory until they are over. Requires the owner's
  // mutex.
  void cancel();

  [[nodiscard]] std::shared_ptr<PlannedOperation> alike() const override {
    return std::make_shared<DlcpOperation>(options_, ways_);
  }
  void average(bool mean, int ranks) override;
  void keep_residual(int ranks, const std::byte* tensor, std::size_t bytes,
                     std::byte* residual) const override;
  // What the protocol asks. Nothing depends on a stream: the operation learns of a lost peer from
  // its endpoint, after what the peer still sent.
  [[nodiscard]] std::optional<Rank> waits_for() const override;
  [[nodiscard]] std::string obstacle(Rank rank) const override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Report = Result<TransferReport>;
  // The part of a chunk that goes one way to a rank.
  struct Part {
    std::size_t way;
    std::int64_t first;
    std::int64_t elements;
  };
  struct Leaving {
    std::vector<Transfer> transfers = {};  // of the parts; empty: it has not started
    std::size_t left = 0;                  // how many are not over
  };

  [[nodiscard]] const std::vector<Peer>& ways_to(Rank rank) const;
  [[nodiscard]] double bound_of(plan::TransferKind kind) const;
  [[nodiscard]] std::vector<Part> parts_of(std::uint32_t buffer, const std::vector<Peer>& ways,
                                           std::uint32_t arrival) const;
  // The segments of a chunk that hold some of these elements of a part. Requires whole ones.
  [[nodiscard]] exec::Run segments_of(const Part& part, ElementRange range) const;
  // The elements of a part that these segments of its chunk hold; none if they are of other parts.
  [[nodiscard]] ElementRange elements_of(const Part& part, exec::Run segments) const;
  // The deadline of each transfer. It comes after the call's own, at which the protocol, which
  // knows whom to blame, ends all of them.
  [[nodiscard]] std::chrono::nanoseconds longest() const;

  // Posts the receives of one arrival.
  Status expect(std::uint32_t arrival);
  // Starts and continues the sends that are ready, and tells the owner if all is done. Unlocks
  // `lock`.
  void go_on(Lock& lock);
  Status start_send(const exec::SegmentExecutor::Ready& ready);
  void offer(const exec::SegmentExecutor::Ready& ready) const;
  void on_arrival(std::uint32_t arrival, const Part& part, std::span<const ElementRange> ranges);
  void on_received(std::uint32_t arrival, const Report& report);
  void on_sent(std::uint32_t send, const Report& report);

  Options options_;
  std::vector<std::vector<Peer>> ways_;
  std::shared_ptr<Owner> owner_;

  // Guarded by the owner's mutex.
  std::unique_ptr<exec::SegmentExecutor> executor_;  // stays as long as a transfer may use it
  std::vector<Transfer> transfers_;                  // in flight or over
  std::vector<std::size_t> arriving_;                // [arrival]: parts that are not over
  std::vector<Leaving> leaving_;                     // [send]
  std::vector<std::vector<SegmentTag>> tags_;        // [buffer][segment], if some may be lost
};

}  // namespace thalweg::net
