// PLink (Luo et al., MLSys 2020): hierarchical aggregation in two levels, the innermost regions and
// the whole network, however deep the network is. The tensor is cut into one shard per rank. A
// shard is pushed to its aggregator in the sender's region, from there to the shard's owner, and
// pulled back the same way: four steps.
//
// The owner aggregates its shard for its own region. In a region of n hosts, the shard of host j of
// m goes to host ⌊j·n / m⌋, which spreads the shards of every region evenly over every other.
//
// As in direct.cc, senders start at different receivers and go round.
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

struct Shard {
  ChunkIndex chunk;
  std::size_t region = 0;  // the owner's region
  std::size_t host = 0;    // the owner's place in that region
  std::size_t hosts = 1;   // number of hosts in that region
};

class PLinkWriter {
 public:
  explicit PLinkWriter(const PlanRequest& request)
      : builder_(plan_header(request)), regions_(innermost_groups(request.topology)) {
    const std::vector<ChunkIndex> chunks =
        add_rank_shares(builder_, ranks_in_region_order(request.topology));
    for (std::size_t region = 0; region < regions_.size(); ++region) {
      for (std::size_t host = 0; host < regions_[region].size(); ++host) {
        shards_.push_back({.chunk = chunks[shards_.size()],
                           .region = region,
                           .host = host,
                           .hosts = regions_[region].size()});
      }
    }
  }

  Plan write() && {
    builder_.begin_round();
    for_each_local([&](Rank member, Rank aggregator, ChunkIndex chunk) {
      builder_.reduce(member, aggregator, chunk);
    });
    builder_.begin_round();
    for_each_global([&](Rank aggregator, Rank owner, ChunkIndex chunk) {
      builder_.reduce(aggregator, owner, chunk);
    });
    builder_.begin_round();
    for_each_global([&](Rank aggregator, Rank owner, ChunkIndex chunk) {
      builder_.copy(owner, aggregator, chunk);
    });
    builder_.begin_round();
    for_each_local([&](Rank member, Rank aggregator, ChunkIndex chunk) {
      builder_.copy(aggregator, member, chunk);
    });
    return std::move(builder_).finish();
  }

  [[nodiscard]] Outline outline(double shard_bytes) const {
    OutlineRound local;
    for (std::size_t region = 0; region < regions_.size(); ++region) {
      const std::vector<Rank>& hosts = regions_[region];
      if (hosts.size() < 2) continue;
      OutlineExchange exchange;
      for (const Rank host : hosts) {
        exchange.from.push_back({.rank = host, .value = 1});
        exchange.to.push_back({.rank = host, .value = 0});
      }
      for (const Shard& shard : shards_) {
        exchange.to[aggregator_place(shard, region)].value += shard_bytes;
      }
      local.exchanges.push_back(std::move(exchange));
    }
    OutlineRound global;
    for_each_global([&](Rank aggregator, Rank owner, ChunkIndex) {
      global.flows.push_back({.from = aggregator, .to = owner, .bytes = shard_bytes});
    });
    // The shards with one aggregator follow one another on the connection to it.
    return {.rounds = up_and_down({std::move(local), std::move(global)}),
            .chunk = shard_bytes,
            .units = static_cast<double>(regions_.size()),
            .drift = regions_.size() > 1 ? 0.4 : 0};
  }

 private:
  [[nodiscard]] std::size_t aggregator_place(const Shard& shard, std::size_t region) const {
    return shard.host * regions_[region].size() / shard.hosts;
  }

  // Calls visit(member, its aggregator, chunk), by rising distance between the two.
  template <class Visit>
  void for_each_local(Visit visit) const {
    for (std::size_t region = 0; region < regions_.size(); ++region) {
      const std::vector<Rank>& hosts = regions_[region];
      for (std::size_t distance = 1; distance < hosts.size(); ++distance) {
        for (const Shard& shard : shards_) {
          const std::size_t place = aggregator_place(shard, region);
          visit(hosts[(place + distance) % hosts.size()], hosts[place], shard.chunk);
        }
      }
    }
  }

  // Calls visit(aggregator, owner, chunk), by rising distance between their regions.
  template <class Visit>
  void for_each_global(Visit visit) const {
    for (std::size_t distance = 1; distance < regions_.size(); ++distance) {
      for (const Shard& shard : shards_) {
        const std::size_t region = (shard.region + distance) % regions_.size();
        visit(regions_[region][aggregator_place(shard, region)], regions_[shard.region][shard.host],
              shard.chunk);
      }
    }
  }

  PlanBuilder builder_;
  std::vector<std::vector<Rank>> regions_;
  std::vector<Shard> shards_;
};

Result<Plan> generate_plink(const PlanRequest& request, const Parameters& /*parameters*/) {
  return PLinkWriter(request).write();
}

Result<Outline> outline_plink(const PlanRequest& request, const Parameters& /*parameters*/) {
  return PLinkWriter(request).outline(
      share_bytes(request, static_cast<std::size_t>(request.topology.host_count())));
}

}  // namespace

const Scheme kPLink{
    .name = "plink",
    .summary = "two levels of sharded aggregation: in each innermost region, then across all",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate_plink,
    .outline = outline_plink,
};

}  // namespace thalweg::plan
