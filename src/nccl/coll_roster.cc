#include "nccl/coll_roster.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::nccl {

CollRoster::CollRoster(int rank, int ranks)
    : rank_(rank), members_(static_cast<std::size_t>(ranks)) {
  CHECK(rank >= 0 && rank < ranks);
  if (rank == 0) history_.resize(kHistory);
}

void CollRoster::on_call(std::uint64_t signature) {
  CollReport& own = members_[static_cast<std::size_t>(rank_)].report;
  ++own.posted;
  own.calls = mix_bits(own.calls + mix_bits(signature) + kGoldenStep);
  if (!history_.empty()) history_[own.posted % kHistory] = own.calls;
  judge();
}

void CollRoster::on_call_finished() {
  CollReport& own = members_[static_cast<std::size_t>(rank_)].report;
  CHECK(own.finished < own.posted);
  ++own.finished;
  judge();
}

void CollRoster::on_message(int rank, const CollMessage& message) {
  const bool from_rank0 = rank == 0;
  Member& member = members_[static_cast<std::size_t>(rank)];
  const auto* const report = std::get_if<CollReport>(&message);
  const auto* const finished = std::get_if<CollFinished>(&message);
  const auto* const failure = std::get_if<CollFailure>(&message);
  const auto* const bye = std::get_if<CollBye>(&message);
  if (report != nullptr && !from_rank0 && report->posted >= member.report.posted &&
      report->finished >= member.report.finished) {
    member.report = *report;
    member.compared = false;
  } else if (finished != nullptr && from_rank0) {
    everyone_ = std::max(everyone_, finished->count);
  } else if (failure != nullptr && from_rank0) {
    fail(Error(failure->code, failure->error));
  } else if (bye != nullptr) {
    member.left = true;
    member.report.finished = std::max(member.report.finished, bye->finished);
  } else {
    fail(Error(ErrorCode::kInternal, fmt::format("rank {} sent a wrong message", rank)));
  }
  judge();
}

void CollRoster::on_lost(int rank, const std::string& peer) {
  if (members_[static_cast<std::size_t>(rank)].left) return;
  fail(
      Error(ErrorCode::kPeerLost,
            fmt::format("rank {} of the CollNet communicator ({}) is gone: it died or aborted, and "
                        "its own log says why",
                        rank, peer),
            rank));
}

void CollRoster::fail(const Error& cause) {
  if (!failure_) failure_ = cause;
}

void CollRoster::judge() {
  if (rank_ == 0) {
    std::uint64_t least = UINT64_MAX;
    for (const Member& member : members_) least = std::min(least, member.report.finished);
    everyone_ = std::max(everyone_, least);
    for (std::size_t rank = 1; rank < members_.size(); ++rank) compare(rank);
  }
  for (std::size_t gone = 0; gone < members_.size(); ++gone) {
    if (!members_[gone].left) continue;
    for (const Member& member : members_) {
      if (member.report.posted <= members_[gone].report.finished) continue;
      fail(Error(ErrorCode::kPeerLost,
                 fmt::format("rank {} has closed the CollNet communicator after {} allreduces, and "
                             "another rank calls one more",
                             gone, members_[gone].report.finished),
                 static_cast<int>(gone)));
    }
  }
}

void CollRoster::compare(std::size_t rank) {
  Member& member = members_[rank];
  const CollReport& own = members_[0].report;
  if (member.compared || member.report.posted > own.posted) return;
  member.compared = true;
  if (member.report.posted == 0 || own.posted - member.report.posted >= kHistory) return;
  if (history_[member.report.posted % kHistory] == member.report.calls) return;
  fail(
      Error(ErrorCode::kMismatch,
            fmt::format("the first {} allreduces of rank 0 and rank {} differ in size or type: all "
                        "ranks must call the same collectives in the same order",
                        member.report.posted, rank)));
}

}  // namespace thalweg::nccl
