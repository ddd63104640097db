#include "lab/bench/allreduce/rank_process.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <utility>

#include <thalweg/communicator.h>
#include <thalweg/version.h>

#include "lab/bench/allreduce/bare.h"
#include "lab/bench/allreduce/rank.h"
#include "net/io/system.h"

namespace thalweg::lab::allreduce {
namespace {

// How long to wait for the other ranks; the benchmark waits as long for ranks that start.
constexpr Duration kMeetLimit = Duration::milliseconds(120'000);

Status serve_bare(Rank rank) {
  THALWEG_TRY(BareRank bare, BareRank::meet(rank.type, rank.op, net::monotonic_now() + kMeetLimit));
  rank.rank = bare.rank();
  rank.ranks = bare.ranks();
  utsname system{};
  uname(&system);
  rank.version = fmt::format("{} {}", system.sysname, system.release);
  rank.allreduce = [&](void* data, std::int64_t elements) {
    return bare.allreduce(data, elements);
  };
  return serve(rank);
}

}  // namespace

Status serve_rank(const RankArguments& arguments) {
  Rank rank;
  THALWEG_TRY(rank.type, parse_type(arguments.type));
  THALWEG_TRY(rank.op, parse_op(arguments.op));
  if (arguments.bare) return serve_bare(std::move(rank));
  rank.lossy = arguments.bound > 0;
  THALWEG_TRY(const Communicator communicator,
              Communicator::create(
                  {.scheme = arguments.scheme,
                   .topology = arguments.topology,
                   .transport = arguments.transport == "dlcp" ? Transport::kDlcp : Transport::kTcp,
                   .shared_memory = arguments.transport == "shm",
                   .dlcp_line_rate_gbps = arguments.rate_gbps}));
  rank.rank = communicator.rank();
  rank.ranks = communicator.size();
  rank.version = std::string("thalweg ") + kVersion;
  const CallOptions options{.op = rank.op, .loss_bound = arguments.bound};
  rank.allreduce = [&, type = rank.type](void* data, std::int64_t elements) {
    return communicator.allreduce({data, elements, type}, options);
  };
  return serve(rank);
}

}  // namespace thalweg::lab::allreduce
