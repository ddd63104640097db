// A CollNet communicator of NCCL: allreduces that a switch sums over ATP (docs/nccl.md). NCCL calls
// it from one thread at a time, in the same order on all ranks, and never waits in a call but
// close().
//
// It has an ATP node, which sums (net/atp/node.h), and a thread with the streams between rank 0 and
// the others (coll_message.h): by them the ranks notice that one is dead, has closed or calls
// something else, and that all have their sums, so that none takes its server away too early.
//
// NCCL sums whole slots of its own pinned memory, of which a tensor's end may fill only a part.
// What lies behind it must not spoil the tensor: elements that share a packet share an exponent.
// NCCL's memory is zero at first, so allreduce() keeps it so: it zeroes what it has read.
//
// Invariants:
// 1. A request that is not running is not touched by the node, nor is its memory.
// 2. After a failure every request that was running ends with it, and no call is taken.
// 3. When deregister_memory() returns, nothing uses that memory.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "base/units.h"
#include "nccl/abi.h"
#include "nccl/coll_meeting.h"
#include "nccl/coll_roster.h"
#include "net/io/event_loop.h"

namespace thalweg::nccl {

class CollGroup;

struct CollRequest {
  enum class State : std::uint8_t { kFree, kRunning, kDone, kFailed };
  CollGroup* group = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::optional<Error> error;  // if it failed; written before `state`
  std::atomic<State> state = State::kFree;
};

// Memory that NCCL has registered.
struct CollMemory {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

class CollGroup final : private net::EventLoop::Handler {
 public:
  [[nodiscard]] static Result<std::unique_ptr<CollGroup>> start(CollParts parts);
  // As close().
  ~CollGroup() override { close(); }
  CollGroup(const CollGroup&) = delete;
  CollGroup& operator=(const CollGroup&) = delete;

  // Sums `count` elements at `send` over all ranks into `receive`, which is `send` or does not
  // overlap it; then zeroes `send`. Null: too many are in flight; NCCL tries again.
  [[nodiscard]] Result<CollRequest*> allreduce(void* send, void* receive, std::size_t count,
                                               DType type);
  // Whether the request is done; if so, `bytes` is its size and the request is free again.
  [[nodiscard]] Result<bool> test(CollRequest& request, std::size_t& bytes);
  // NCCL frees its memory after this and before it closes the communicator, also when requests are
  // running: then they fail.
  void deregister_memory(const CollMemory& memory);
  // If all requests are over, waits until all ranks have their sums, for a few seconds at most.
  // Otherwise the other ranks see that this rank is gone.
  void close();

 private:
  explicit CollGroup(CollParts parts, std::unique_ptr<net::EventLoop> loop);
  CollRequest* free_request();
  void begin(CollRequest& request, DType type, std::size_t count);
  void end(CollRequest& request, const Status& status);
  // Fails what is running, and waits until it has ended.
  void abandon();
  // Lets the thread report soon. Requires the mutex.
  void note_change();

  // Only the thread calls these:
  void on_ready(int fd, std::uint32_t events) override;
  std::optional<Time> turn();
  void read(int rank);
  // Tells the other ranks what has changed, and the node if the group has failed.
  void tell();
  void say_bye();

  std::unique_ptr<net::EventLoop> loop_;
  CollParts parts_;
  std::array<CollRequest, 2 * kNcclMaxRequests> requests_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  CollRoster roster_;
  int running_ = 0;
  bool noted_ = false;  // the thread knows that something has changed

  // Only the thread uses these:
  CollReport told_;                  // what rank 0 was told last
  std::uint64_t told_everyone_ = 0;  // what rank 0 has told the others
  bool told_failure_ = false;
  std::optional<Time> report_at_;
  std::thread thread_;
};

}  // namespace thalweg::nccl
