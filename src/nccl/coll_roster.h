// Who of a CollNet communicator's ranks has done what, and what follows from it: how many calls all
// ranks have finished, and whether the communicator is broken. No I/O, no clock; not thread-safe.
//
// Rank 0 hears from all ranks, every other rank from rank 0 only (coll_message.h).
//
// Invariants:
// 1. everyone() never shrinks, and no rank has finished fewer calls.
// 2. A failure stays: the first one is kept.
// 3. A rank that closes after n calls breaks the communicator only for ranks that make call n + 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "nccl/coll_message.h"

namespace thalweg::nccl {

class CollRoster {
 public:
  // Requires 0 <= rank < ranks.
  CollRoster(int rank, int ranks);

  // This rank posts a call; `signature` differs between calls of other sizes or types.
  void on_call(std::uint64_t signature);
  // One of this rank's calls is finished.
  void on_call_finished();

  // A message of another rank: on rank 0 of any, on another of rank 0. One that this rank does not
  // expect from there breaks the communicator.
  void on_message(int rank, const CollMessage& message);
  // The stream of a rank has ended. `peer`: its address.
  void on_lost(int rank, const std::string& peer);
  void fail(const Error& cause);

  [[nodiscard]] const CollReport& own() const {
    return members_[static_cast<std::size_t>(rank_)].report;
  }
  // Calls that all ranks have finished, as far as this rank knows.
  [[nodiscard]] std::uint64_t everyone() const { return everyone_; }
  // Why the communicator is broken; none: it is not.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  // Whether rank 0 has closed, so that nothing more will be heard.
  [[nodiscard]] bool rank0_left() const { return members_[0].left; }

 private:
  // A rank is at most kNcclMaxRequests calls ahead of another, and what it reports is some calls
  // old. Older reports are not compared.
  static constexpr std::size_t kHistory = 4096;
  struct Member {
    CollReport report;
    bool compared = true;  // report.calls was compared with rank 0's, or need not be
    bool left = false;
  };
  void judge();
  void compare(std::size_t rank);

  int rank_;
  std::vector<Member> members_;
  std::vector<std::uint64_t> history_;  // of rank 0: [n modulo kHistory]: `calls` after n calls
  std::uint64_t everyone_ = 0;
  std::optional<Error> failure_;
};

}  // namespace thalweg::nccl
