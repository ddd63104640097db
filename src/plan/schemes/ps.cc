// Parameter server: m servers, each with its part of the tensor. Every worker pushes each part to
// its server, which adds them up; every worker pulls the sums back. Two steps.
//
// Co-located, workers serve too, as in BytePS and the RAT paper (§4.1): m workers spread evenly
// over the regions. Separate, the last m hosts of the topology only serve.
//
// Small tensors may go to one server as a whole, which a hash of the tensor's place in the model
// chooses (the DLCP paper, section 5.2.1): many small messages become few, and all workers send to
// one server.
//
// Every worker starts with another server and goes round, so that sends made in plan order do not
// all meet at the first server.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/prng.h"
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"
#include "topology/format/text.h"

namespace thalweg::plan {
namespace {

struct Roles {
  std::vector<Rank> workers;
  std::vector<Rank> servers;
};

Result<Roles> assign_roles(const PlanRequest& request, const Parameters& parameters) {
  constexpr std::array<std::string_view, 2> kPlacements{"colocated", "separate"};
  const Result<std::string> placement = parameters.choice("placement", kPlacements);
  if (!placement.ok()) return placement.error();
  const bool separate = *placement == "separate";
  const int hosts = request.topology.host_count();
  if (separate && hosts < 2) {
    return Error("placement=separate needs at least 2 hosts, a server and a worker: there is 1");
  }
  THALWEG_TRY(int servers, parameters.integer("servers", 0, separate ? hosts - 1 : hosts));
  if (servers == 0) servers = separate ? 1 : hosts;

  Roles roles{.workers = ranks_in_region_order(request.topology), .servers = {}};
  if (separate) {
    const Rank first_server(hosts - servers);
    std::erase_if(roles.workers, [&](Rank rank) { return rank >= first_server; });
    for (Rank rank = first_server; rank.value() < hosts; ++rank) roles.servers.push_back(rank);
  } else {
    roles.servers = spread_over(roles.workers, static_cast<std::size_t>(servers));
  }
  return roles;
}

std::size_t server_of(std::uint64_t tensor, std::size_t servers) {
  return static_cast<std::size_t>(mix_bits((tensor + 1) * kGoldenStep) % servers);
}

// The workers, and the servers among which this tensor is divided.
Result<Roles> roles_of_tensor(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(Roles roles, assign_roles(request, parameters));
  const auto whole = parse_bytes(parameters.text("whole"));
  if (!whole.ok()) return whole.error().within("whole");
  if (Bytes(request.elements * request.element_bytes) <= *whole) {
    roles.servers = {roles.servers[server_of(request.tensor, roles.servers.size())]};
  }
  return roles;
}

Result<Outline> outline_ps(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const Roles roles, roles_of_tensor(request, parameters));
  Outline outline{.chunk = share_bytes(request, roles.servers.size())};
  if (roles.workers.size() < 2) return outline;
  OutlineExchange push;
  for (const Rank worker : roles.workers) push.from.push_back({.rank = worker, .value = 1});
  for (const Rank server : roles.servers) {
    push.to.push_back({.rank = server, .value = outline.chunk});
  }
  OutlineRound round;
  round.exchanges.push_back(std::move(push));
  outline.rounds = up_and_down({std::move(round)});
  return outline;
}

Result<Plan> generate_allreduce(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const Roles roles, roles_of_tensor(request, parameters));
  Plan header = plan_header(request);
  header.contributors = static_cast<int>(roles.workers.size());
  PlanBuilder builder(std::move(header));
  const std::size_t servers = roles.servers.size();
  const std::vector<ChunkIndex> parts = add_parts(builder, servers);

  // A single worker has the sum already.
  if (roles.workers.size() == 1) return std::move(builder).finish();

  const auto for_each_pair = [&](auto visit) {
    builder.begin_round();
    for (std::size_t turn = 0; turn < servers; ++turn) {
      for (std::size_t i = 0; i < roles.workers.size(); ++i) {
        const std::size_t s = (i + turn) % servers;
        if (roles.workers[i] != roles.servers[s]) visit(roles.workers[i], s);
      }
    }
  };
  for_each_pair(
      [&](Rank worker, std::size_t s) { builder.reduce(worker, roles.servers[s], parts[s]); });
  for_each_pair(
      [&](Rank worker, std::size_t s) { builder.copy(roles.servers[s], worker, parts[s]); });
  return std::move(builder).finish();
}

// The root is the only server.
Result<Plan> generate_rooted(const PlanRequest& request, const Parameters& parameters) {
  if (parameters.text("servers") != "0" || parameters.text("placement") != "colocated" ||
      parameters.text("whole") != "0B") {
    return Error(fmt::format(
        "servers, placement and whole are for allreduce: the server of a {} is its root",
        name_of(request.collective)));
  }
  PlanBuilder builder(plan_header(request));
  Tree star{.chunks = add_parts(builder, 1), .levels = {{}}};
  for (const Rank rank : ranks_in_region_order(request.topology)) {
    if (rank != request.root) star.levels[0].push_back({.child = rank, .parent = request.root});
  }
  run_trees(builder, std::array{std::move(star)});
  return std::move(builder).finish();
}

Result<Plan> generate_ps(const PlanRequest& request, const Parameters& parameters) {
  return request.collective == Collective::kAllreduce ? generate_allreduce(request, parameters)
                                                      : generate_rooted(request, parameters);
}

}  // namespace

const Scheme kPs{
    .name = "ps",
    .summary = "parameter servers: everyone pushes to the server of each part and pulls the sum",
    .collectives = {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast},
    .parameters = {{.name = "servers",
                    .default_value = "0",
                    .meaning = "how many servers share the tensor; 0: all hosts if colocated, 1 "
                               "if separate"},
                   {.name = "placement",
                    .default_value = "colocated",
                    .meaning = "colocated: workers serve; separate: the last hosts only serve"},
                   {.name = "whole",
                    .default_value = "0B",
                    .meaning = "tensors up to this size go to one server, drawn for each; 0B: "
                               "every tensor is divided among all"}},
    .generate = generate_ps,
    .outline = outline_ps,
};

}  // namespace thalweg::plan
