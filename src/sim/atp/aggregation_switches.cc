#include "sim/atp/aggregation_switches.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "sim/atp/packet_header.h"

namespace thalweg::sim {
namespace {

using Cause = switches::AggregateAction::Cause;
using Emit = switches::AggregateAction::Emit;
using Payload = switches::AggregateAction::Payload;

// How many slots each gradient packet checks for an expired lifetime.
constexpr std::uint32_t kSweptWithPacket = 1;

}  // namespace

AggregationSwitches::AggregationSwitches(const topology::Topology& topology,
                                         const AggregationOptions& options, EventQueue& events,
                                         Fabric& fabric)
    : topology_(topology),
      events_(events),
      fabric_(fabric),
      pool_(fabric.pool()),
      sites_(topology.nodes().size()) {
  table_options_.slots = options.slots;
  table_options_.slot_elements = options.elements;
  table_options_.lifetime = options.lifetime;
  table_options_.hash_sequences = options.hash_sequences;
  table_options_.pass_second_level_resends = options.pass_second_level_resends;
  if (options.slots == 0) return;
  CHECK(table_options_.validate().ok(), "{}", table_options_.validate().error().message());
  for (const topology::NodeId node : options.switches) {
    sites_[node.index()] = std::make_unique<Site>(table_options_);
  }
}

Result<topology::AggregationGroups> AggregationSwitches::groups_of(
    const AggregationSpec& spec) const {
  return topology::aggregation_groups(
      topology_, spec.workers, spec.servers,
      [this](topology::NodeId node) { return aggregates(node); },
      {.workers = wire::kAtpMostWorkersPerGroup, .groups = wire::kAtpMostGroups});
}

Status AggregationSwitches::add_job(std::uint32_t job, const AggregationSpec& spec,
                                    const topology::AggregationGroups& groups,
                                    const std::vector<std::optional<proto::AtpSeat>>& seats) {
  admit(job, spec);
  jobs_.back().servers = spec.servers;
  jobs_.back().seats = seats;
  // The job is also added at switches that do nothing for it: its packets only pass there.
  for (std::size_t n = 0; n < sites_.size(); ++n) {
    if (!sites_[n]) continue;
    switches::AggregateJob about{
        .id = job, .window = jobs_.back().parameters->window, .slot_limit = spec.slot_limit};
    for (const topology::AggregationGroups::Site& site : groups.sites) {
      if (site.node.index() != n) continue;
      about.second_level = site.second_level;
      for (const std::size_t group : site.groups)
        about.groups |= wire::atp_bit(static_cast<unsigned>(group));
    }
    THALWEG_TRY_STATUS(sites_[n]->atp.add_job(about));
  }
  return ok_status();
}

Status AggregationSwitches::add_switchml_job(std::uint32_t job, const AggregationSpec& spec,
                                             topology::NodeId node) {
  admit(job, spec);
  const AggregationParameters& parameters = *jobs_.back().parameters;
  if (parameters.elements > table_options_.slot_elements) {
    return Error(
        fmt::format("SwitchML: {} elements in a packet, {} in a switch's slot: set "
                    "aggregation.elements to at least as many",
                    parameters.elements, table_options_.slot_elements));
  }
  Site& site = *sites_[node.index()];
  if (!site.switchml) {
    site.switchml.emplace(table_options_);
    site.switchml_values.resize(table_options_.slots);
  }
  return site.switchml->add_job({.id = job,
                                 .workers = static_cast<std::uint32_t>(spec.workers.size()),
                                 .pool = parameters.window});
}

void AggregationSwitches::admit(std::uint32_t job, const AggregationSpec& spec) {
  CHECK(job == jobs_.size());
  Job& admitted = jobs_.emplace_back();
  admitted.parameters = spec.transport->aggregation();
  admitted.workers = spec.workers;
}

void AggregationSwitches::on_packet(std::uint32_t node, std::uint32_t place) {
  PooledPacket& packet = pool_[place];
  wire::AtpHeader header = header_of(packet);
  switch (header.kind) {
    case wire::AtpKind::kGradient:
      return on_gradient(node, place, header);
    case wire::AtpKind::kUpdate:
      return on_update(node, place, header);
    case wire::AtpKind::kParameter:
      if (Site* const site = site_of(node); site != nullptr) site->atp.on_parameter(header);
      break;
    case wire::AtpKind::kAbort:
    case wire::AtpKind::kMissing:
    case wire::AtpKind::kResult:
      break;
  }
  if (packet.kind == PacketKind::kMulticast) {
    const bool own = own_sum(jobs_[header.job], header.sequence);
    return multicast(node, place, own ? packet.source : Rank());
  }
  fabric_.forward(node, place);
}

std::optional<switches::AggregateTable::OwnServer> AggregationSwitches::own_server(const Job& job,
                                                                                   Rank host) {
  for (std::size_t s = 0; s < job.seats.size(); ++s) {
    if (!job.seats[s] || job.servers[s] != host) continue;
    return switches::AggregateTable::OwnServer{static_cast<std::uint32_t>(s),
                                               static_cast<std::uint32_t>(job.seats.size())};
  }
  return std::nullopt;
}

// A share of the sequences, the same at every switch, passes without a look at the table.
bool AggregationSwitches::forced(const Job& job, const wire::AtpHeader& header) {
  if (job.parameters->forwarding == 0) return false;
  const std::uint64_t hash = mix_bits(header.sequence * kGoldenStep + header.job);
  return static_cast<double>(hash >> 11) * 0x1p-53 < job.parameters->forwarding;
}

// A sum that leaves the first level may enter the second at the same switch.
void AggregationSwitches::on_gradient(std::uint32_t node, std::uint32_t place,
                                      wire::AtpHeader& header) {
  Site* const site = site_of(node);
  if (site == nullptr || header.level == wire::kAtpServerLevel) return fabric_.forward(node, place);
  if (forced(jobs_[header.job], header)) {
    if (header.level == wire::kAtpFirstLevel) ++jobs_[header.job].forwarded;
    return fabric_.forward(node, place);
  }
  header.congested |= pool_[place].ecn == Ecn::kCongested;
  site->atp.sweep(events_.now(), kSweptWithPacket);
  const auto own = own_server(jobs_[header.job], pool_[place].source);
  if (const auto missing = site->atp.missing_before(header, own)) report(node, place, *missing);
  bool goes_on = true;
  for (std::uint8_t level = wire::kAtpFirstLevel; goes_on && level <= wire::kAtpSecondLevel;
       ++level) {
    if (header.level != level) continue;
    const switches::AggregateAction action = site->atp.on_gradient(header, events_.now());
    goes_on = apply(action, site->atp_values, place);
  }
  if (!goes_on) return fabric_.absorb(place);
  put_header(header, pool_[place]);
  fabric_.forward(node, place);
}

// The report goes back to the host that sent the packet.
void AggregationSwitches::report(std::uint32_t node, std::uint32_t place,
                                 const wire::AtpHeader& missing) {
  const auto size = static_cast<std::uint32_t>(jobs_[missing.job].parameters->header.count());
  const std::uint32_t made = fabric_.copy(place, size);
  PooledPacket& packet = pool_[made];
  put_header(missing, packet);
  packet.target = packet.source;
  fabric_.forward(node, made);
}

bool AggregationSwitches::apply(const switches::AggregateAction& action,
                                std::vector<std::uint32_t>& values, std::uint32_t place) {
  PooledPacket& packet = pool_[place];
  switch (action.payload) {
    case Payload::kNothing:
      break;
    case Payload::kStore:
      values[action.slot] = packet.payload;
      break;
    case Payload::kAdd:
      values[action.slot] += packet.payload;
      break;
  }
  // All sums of a job take one path, whichever worker sent the packet that completed them.
  if (action.emit != Emit::kNothing && action.emit != Emit::kPacket) {
    packet.payload = values[action.slot];
    packet.path_hash = static_cast<std::uint32_t>(packet.flow.value());
  }
  return action.emit != Emit::kNothing;
}

// The sum travels in the packet that completed it, or that asked for it.
void AggregationSwitches::on_update(std::uint32_t node, std::uint32_t place,
                                    wire::AtpHeader& header) {
  Site* const site = site_of(node);
  if (site == nullptr || !site->switchml) return fabric_.forward(node, place);
  const switches::AggregateAction action = site->switchml->on_update(header);
  if (!apply(action, site->switchml_values, place)) return fabric_.absorb(place);
  PooledPacket& packet = pool_[place];
  put_header(header, packet);
  packet.target = packet.source;
  packet.ecn = Ecn::kNotCapable;
  if (action.emit == Emit::kSumToSender) return fabric_.forward(node, place);
  packet.kind = PacketKind::kMulticast;
  multicast(node, place);
}

// Every branch but the last gets a copy, and the last the packet itself. A packet that was under
// way when routes changed may find no branch here; its receivers treat that as loss.
void AggregationSwitches::multicast(std::uint32_t node, std::uint32_t place, Rank except) {
  const PooledPacket& packet = pool_[place];
  const auto number = static_cast<std::uint32_t>(packet.flow.value());
  const auto source = static_cast<std::uint32_t>(packet.source.value());
  Tree& tree = tree_from(fabric_.routes().end_node(source), jobs_[number], number);
  const auto gets_one = [&](const Branch& branch) {
    return !branch.worker.valid() || branch.worker != except;
  };
  const std::vector<Branch>& out = tree[node];
  auto left = std::ranges::count_if(out, gets_one);
  if (left == 0) return fabric_.absorb(place);
  for (const Branch& branch : out) {
    if (!gets_one(branch)) continue;
    const std::uint32_t one = --left > 0 ? fabric_.copy(place) : place;
    if (branch.worker.valid()) pool_[one].target = branch.worker;
    fabric_.send_by(branch.arc, one);
  }
}

AggregationSwitches::Tree& AggregationSwitches::tree_from(std::uint32_t root, Job& job,
                                                          std::uint32_t number) {
  if (job.tree_version != fabric_.routes_version()) {
    job.trees.clear();
    job.tree_version = fabric_.routes_version();
  }
  const auto [found, fresh] = job.trees.try_emplace(root);
  if (fresh) grow(found->second, root, job.workers, number);
  return found->second;
}

// Workers behind one edge switch make the same choice, so that they share a branch. Routes are
// shortest paths, so no node is visited twice.
void AggregationSwitches::grow(Tree& tree, std::uint32_t node, const std::vector<Rank>& workers,
                               std::uint32_t number) const {
  std::map<std::uint32_t, std::vector<Rank>> further;  // by arc
  std::vector<Branch> out;
  for (const Rank worker : workers) {
    const auto target = static_cast<std::uint32_t>(worker.value());
    const auto hops = fabric_.routes().hops(node, target);
    if (hops.empty()) continue;
    const std::uint64_t choice =
        mix_bits(std::uint64_t{number} << 32 | fabric_.routes().end_node(target));
    const std::uint32_t arc = hops[choice % hops.size()];
    const topology::NodeId next = topology_.arc(topology::ArcId(static_cast<std::int32_t>(arc))).to;
    if (next == topology_.host(worker)) {
      out.push_back({arc, worker});
    } else {
      further[arc].push_back(worker);
    }
  }
  for (const auto& [arc, behind] : further) {
    out.push_back({arc, Rank()});
    const topology::NodeId next = topology_.arc(topology::ArcId(static_cast<std::int32_t>(arc))).to;
    grow(tree, static_cast<std::uint32_t>(next.value()), behind, number);
  }
  auto& branches = tree[node];
  branches.insert(branches.end(), out.begin(), out.end());
}

void AggregationSwitches::on_restart(std::uint32_t node) {
  if (Site* const site = site_of(node); site != nullptr) {
    site->atp.restart();
    if (site->switchml) site->switchml->restart();
  }
}

void AggregationSwitches::count(std::uint32_t job, AggregationCounters& counters) const {
  counters.forwarded += jobs_[job].forwarded;
  for (const auto& site : sites_) {
    if (!site) continue;
    for (const switches::AggregateCounters* of :
         {site->atp.counters(job), site->switchml ? site->switchml->counters(job) : nullptr}) {
      if (of == nullptr) continue;
      counters.aggregated += of->of(Cause::kStored) + of->of(Cause::kAdded);
      counters.completed += of->of(Cause::kCompleted);
      counters.aggregated += of->of(Cause::kCompleted);
      counters.collisions += of->of(Cause::kCollision) + of->of(Cause::kLimited);
      counters.partial_sums += of->partial_sums;
      counters.expired += of->expired;
      counters.most_slots = std::max(counters.most_slots, std::uint64_t{of->most_slots});
    }
  }
}

// Once nothing happens any more, only a packet that came after its sum may still hold a slot, which
// its lifetime frees.
void AggregationSwitches::check(bool idle, std::vector<std::string>& violations) const {
  if (!idle) return;
  for (std::size_t n = 0; n < sites_.size(); ++n) {
    if (!sites_[n]) continue;
    switches::AggregateTable later = sites_[n]->atp;
    later.sweep(events_.now() + table_options_.lifetime, table_options_.slots);
    if (later.slots_in_use() == 0) continue;
    violations.push_back(fmt::format("switch {} keeps {} aggregators for ever",
                                     topology_.nodes()[n].name, later.slots_in_use()));
  }
}

}  // namespace thalweg::sim
