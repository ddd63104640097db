#include <fmt/format.h>
#include <sys/utsname.h>

#include <memory>
#include <string>
#include <utility>

#include <thalweg/communicator.h>
#include <thalweg/version.h>

#include "cli/allreduce/bare.h"
#include "cli/allreduce/rank.h"
#include "cli/bench_allreduce.h"
#include "cli/command.h"
#include "net/system.h"

namespace thalweg {
namespace {

// The benchmark's patience with ranks that start is the same.
constexpr Duration kMeetLimit = Duration::milliseconds(120'000);

struct Arguments {
  std::string type;
  std::string op;
  std::string transport = "tcp";
  std::string scheme;
  std::string topology;
  double bound = 0;
  double rate_gbps = 0;
  bool bare = false;
};

Status serve_bare(allreduce::Rank rank) {
  THALWEG_TRY(allreduce::BareRank bare,
              allreduce::BareRank::meet(rank.type, rank.op, monotonic_now() + kMeetLimit));
  rank.rank = bare.rank();
  rank.ranks = bare.ranks();
  utsname system{};
  uname(&system);
  rank.version = fmt::format("{} {}", system.sysname, system.release);
  rank.allreduce = [&](void* data, std::int64_t elements) {
    return bare.allreduce(data, elements);
  };
  return allreduce::serve(rank);
}

Result<int> run(const Arguments& arguments) {
  allreduce::Rank rank;
  THALWEG_TRY(rank.type, allreduce::parse_type(arguments.type));
  THALWEG_TRY(rank.op, allreduce::parse_op(arguments.op));
  if (arguments.bare) {
    THALWEG_TRY_STATUS(serve_bare(std::move(rank)));
    return 0;
  }
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
  THALWEG_TRY_STATUS(allreduce::serve(rank));
  return 0;
}

}  // namespace

void add_bench_allreduce_rank(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *bench.add_subcommand("allreduce-rank", "a rank of bench allreduce");
  app.group("");
  app.add_option("type", arguments->type)->required();
  app.add_option("op", arguments->op)->required();
  app.add_option("--transport", arguments->transport);
  app.add_option("--scheme", arguments->scheme);
  app.add_option("--topology", arguments->topology);
  app.add_option("--bound", arguments->bound);
  app.add_option("--rate-gbps", arguments->rate_gbps);
  app.add_flag("--bare", arguments->bare);
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
