// PLink (Luo et al., MLSys 2020): hierarchical aggregation in two levels, the innermost regions and
// everything, however deep the network is. The tensor is cut into one shard a rank. A shard is
// pushed to its aggregator in the sender's region, from there to the shard's owner, and pulled back
// the same way: four steps.
//
// The owner aggregates its shard for its own region. In a region of n hosts, the shard of host j of
// m falls to host ⌊j·n / m⌋, which spreads the shards of every region evenly over every other.
//
// As in direct.cc, senders start at different receivers and go round.
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg {
namespace {

struct Shard {
  ChunkIndex chunk;
  std::size_t region = 0;  // of the owner
  std::size_t host = 0;    // the owner's place in the region
  std::size_t hosts = 1;   // of that region
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

 private:
  [[nodiscard]] std::size_t aggregator_place(const Shard& shard, std::size_t region) const {
    return shard.host * regions_[region].size() / shard.hosts;
  }

  // visit(member, its aggregator, chunk), by rising distance between the two.
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

  // visit(aggregator, owner, chunk), by rising distance between their regions.
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

Result<Plan> generate(const PlanRequest& request, const Parameters& /*parameters*/) {
  return PLinkWriter(request).write();
}

}  // namespace

const Scheme kPLink{
    .name = "plink",
    .summary = "two levels of sharded aggregation: in each innermost region, then across all",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate,
};

}  // namespace thalweg
