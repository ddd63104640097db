#include "switchd/data_plane.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "net/io/system.h"
#include "tensor/saturating_add.h"

namespace thalweg::switchd {
namespace {

// The member numbers of a switch's shards start here, above those of all workers and servers of a
// job.
constexpr std::uint16_t kFirstShardMember = 0x8000;
constexpr std::uint32_t kSweptPerTick = 4096;

std::span<const std::byte> as_bytes(const std::int32_t* elements, std::size_t count) {
  return std::as_bytes(std::span(elements, count));
}

// How many workers of the job are of each group. A job of one group need not say so. None: it is
// not known.
std::span<const std::uint32_t> group_ends(const AdmittedJob& job, const wire::AtpHeader& header,
                                          std::uint32_t& all) {
  if (job.about.group_ends.size() == header.group_count) return job.about.group_ends;
  all = static_cast<std::uint32_t>(job.workers.size());
  if (header.group_count != 1 || all > wire::kAtpMostWorkersPerGroup) return {};
  return std::span<const std::uint32_t>(&all, 1);
}

}  // namespace

DataPlane::DataPlane(const switches::AggregateOptions& options, std::uint16_t shard, Output& output)
    : output_(output),
      shard_(shard),
      table_(options),
      stride_(options.slot_elements),
      elements_(std::size_t{options.slots} * stride_) {}

std::vector<const DataPlane::End*> DataPlane::use(const AdmittedJob& job,
                                                  const net::SocketAddress& end) {
  std::vector<const End*> used;
  for (const net::SocketAddress& address : job.addresses_of(end)) {
    End& each = ends_[address];
    ++each.users;
    used.push_back(&each);
  }
  return used;
}

void DataPlane::release(const AdmittedJob& job, const net::SocketAddress& end) {
  for (const net::SocketAddress& address : job.addresses_of(end)) {
    const auto found = ends_.find(address);
    if (--found->second.users == 0) ends_.erase(found);
  }
}

Status DataPlane::install(const AdmittedJob& about) {
  THALWEG_TRY_STATUS(table_.add_job(aggregate_job(about)));
  Job& job = jobs_[about.id];
  job.about = about;
  for (std::size_t i = 0; i < about.workers.size(); ++i) {
    for (const End* end : use(about, about.workers[i])) job.members[end].worker = i;
    job.paths = std::max(job.paths, about.paths_to(about.workers[i]));
  }
  for (std::size_t i = 0; i < about.servers.size(); ++i) {
    const net::SocketAddress& address = about.servers[i];
    for (const End* end : use(about, address)) {
      job.members[end].server = static_cast<std::uint32_t>(i);
    }
    job.paths = std::max(job.paths, about.paths_to(address));
  }
  if (about.key) {
    job.sealer.emplace(
        *about.key,
        wire::AtpOrigin{.member = static_cast<std::uint16_t>(kFirstShardMember + shard_),
                        .mark = static_cast<std::uint16_t>(net::random_number()),
                        .first_count = net::random_number()});
    job.verifier.emplace(*about.key);
  }
  return ok_status();
}

void DataPlane::remove(std::uint32_t id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  table_.remove_job(id);
  const AdmittedJob& about = found->second.about;
  for (const net::SocketAddress& address : about.workers) release(about, address);
  for (const net::SocketAddress& address : about.servers) release(about, address);
  jobs_.erase(found);
}

DataPlane::Received DataPlane::received_from(const net::SocketAddress& end) const {
  const auto found = ends_.find(end);
  return found == ends_.end() ? Received{} : found->second.received;
}

void DataPlane::on_tick(Time now) { table_.sweep(now, kSweptPerTick); }

void DataPlane::on_run(const Run& run, const net::SocketAddress& from, Time now) {
  CHECK(run.packet_size > 0 || run.bytes.empty());
  const std::size_t packets = run.bytes.empty() ? 1 : (run.bytes.size() - 1) / run.packet_size + 1;
  if (own_.contains(from)) {
    looped_ += packets;
    return;
  }
  const auto found = ends_.find(from);
  if (found == ends_.end()) {
    strangers_ += packets;
    return;
  }
  End& end = found->second;
  if (run.bytes.empty()) {
    ++end.received.packets;
    ++malformed_;
    return;
  }
  Context context{.end = &end};
  for (std::size_t at = 0; at < run.bytes.size(); at += run.packet_size) {
    const auto packet = run.bytes.subspan(at, std::min(run.packet_size, run.bytes.size() - at));
    ++end.received.packets;
    on_packet(packet, context, run, now);
  }
  end.received.bytes += run.bytes.size();
}

void DataPlane::on_packet(std::span<const std::byte> packet, Context& context, const Run& run,
                          Time now) {
  wire::AtpHeader header;
  if (const auto error = wire::decode_atp_header(packet, header); error != wire::WireError::kNone) {
    ++(error == wire::WireError::kChecksum ? corrupt_ : malformed_);
    return;
  }
  if (context.job == nullptr || context.job->about.id != header.job) {
    const auto found = jobs_.find(header.job);
    if (found == jobs_.end()) {
      ++strangers_;
      return;
    }
    context.job = &found->second;
    const auto member = context.job->members.find(context.end);
    context.member = member == context.job->members.end() ? Member() : member->second;
  }
  if (!admit(packet, header, context)) return;
  header.congested = header.congested || run.marked;
  std::optional<std::span<const std::byte>> out = wire::atp_payload(packet, header);
  if (header.kind != wire::AtpKind::kGradient) {
    out = act(table_.on_parameter(header), header, *out);
  } else {
    if (const auto missing = table_.missing_before(header, own_server(context))) {
      report(*missing, context);
    }
    const bool first = header.level == wire::kAtpFirstLevel;
    out = act(table_.on_gradient(header, now), header, *out);
    // What leaves the first level enters the second at once if that is here too.
    if (out && first && header.level == wire::kAtpSecondLevel &&
        context.job->about.about.second_level) {
      out = act(table_.on_gradient(header, now), header, *out);
    }
  }
  if (out) emit(header, *out, context);
}

bool DataPlane::admit(std::span<const std::byte> packet, const wire::AtpHeader& header,
                      const Context& context) {
  Job& job = *context.job;
  const bool up = header.kind == wire::AtpKind::kGradient || header.kind == wire::AtpKind::kUpdate;
  if (!(up ? context.member.worker.has_value() : context.member.server.has_value())) {
    ++job.refused.foreign;
    return false;
  }
  if (header.keyed != job.verifier.has_value()) {
    ++job.refused.keying;
    return false;
  }
  if (job.verifier && !job.verifier->genuine(packet)) {
    ++job.refused.forged;
    return false;
  }
  return true;
}

std::uint32_t DataPlane::path_of(const wire::AtpHeader& header, Job& job) {
  if (job.paths == 1) return 0;
  // A sum that is not for all workers answers one that was sent again.
  const bool all = header.groups == wire::atp_all(header.group_count);
  const bool again = header.kind == wire::AtpKind::kGradient ? header.resend : !all;
  return again ? job.next_path++ % job.paths : wire::atp_path_of(header.sequence, job.paths);
}

// The stage may have rewritten the header, but never the number of elements.
std::optional<std::span<const std::byte>> DataPlane::act(const switches::AggregateAction& action,
                                                         wire::AtpHeader& header,
                                                         std::span<const std::byte> elements) {
  switch (action.payload) {
    case switches::AggregateAction::Payload::kNothing:
      break;
    case switches::AggregateAction::Payload::kStore:
      // The elements may be those of this slot, which the first level has just freed.
      std::memmove(slot(action.slot), elements.data(), elements.size());
      break;
    case switches::AggregateAction::Payload::kAdd:
      if (tensor::add_saturating(slot(action.slot), elements.data(), header.elements)) {
        if (!action.freed) table_.mark_saturated(action.slot);
        header.saturated = true;
      }
      break;
  }
  switch (action.emit) {
    case switches::AggregateAction::Emit::kNothing:
      return std::nullopt;
    case switches::AggregateAction::Emit::kPacket:
      return elements;
    case switches::AggregateAction::Emit::kSum:
    case switches::AggregateAction::Emit::kSumToWorkers:
    case switches::AggregateAction::Emit::kSumToSender:
      break;
  }
  return as_bytes(slot(action.slot), header.elements);
}

// The report goes to the sender of the packet that showed the loss.
void DataPlane::report(const wire::AtpHeader& missing, const Context& context) {
  Job& job = *context.job;
  const std::span<std::byte> out =
      output_.to_workers(missing.job, {.only = context.member.worker}, path_of(missing, job),
                         wire::atp_packet_size(missing));
  wire::encode_atp_header(missing, out);
  if (job.sealer) job.sealer->seal(out);
}

std::optional<switches::AggregateTable::OwnServer> DataPlane::own_server(const Context& context) {
  const AdmittedJob& about = context.job->about;
  const Member& member = context.member;
  if (!about.about.own_sums || !member.worker || !member.server) return std::nullopt;
  return switches::AggregateTable::OwnServer{*member.server,
                                             static_cast<std::uint32_t>(about.servers.size())};
}

void DataPlane::emit(const wire::AtpHeader& header, std::span<const std::byte> elements,
                     const Context& context) {
  Job& job = *context.job;
  if (header.kind != wire::AtpKind::kGradient) {
    to_receivers(header, elements, context);
    return;
  }
  fill(output_.to_server(header.job, header.sequence, path_of(header, job),
                         wire::atp_packet_size(header)),
       header, elements, job);
}

// A server that is a worker has its own sum already.
void DataPlane::to_receivers(const wire::AtpHeader& header, std::span<const std::byte> elements,
                             const Context& context) {
  Job& job = *context.job;
  const std::optional<std::size_t> except =
      own_server(context) ? context.member.worker : std::nullopt;
  const std::size_t size = wire::atp_packet_size(header);
  const std::uint32_t path = path_of(header, job);
  std::uint32_t all = 0;
  const std::span<const std::uint32_t> groups = group_ends(job.about, header, all);
  const bool everyone = header.groups == wire::atp_all(header.group_count);
  if (header.kind != wire::AtpKind::kParameter || everyone || groups.empty()) {
    fill(output_.to_workers(header.job, {.except = except}, path, size), header, elements, job);
    return;
  }
  std::size_t first = 0;
  for (unsigned g = 0; g < groups.size(); first += groups[g++]) {
    const bool whole = (header.groups & wire::atp_bit(g)) != 0;
    if (!whole && (g != header.group || header.workers == 0)) continue;
    for (unsigned i = 0; i < groups[g]; ++i) {
      // One end is the worker itself or, of a larger group, its switch.
      if (!whole && groups[g] > 1 && (header.workers & wire::atp_bit(i)) == 0) continue;
      if (first + i == except) continue;
      fill(output_.to_workers(header.job, {.only = first + i}, path, size), header, elements, job);
    }
  }
}

void DataPlane::fill(std::span<std::byte> packet, const wire::AtpHeader& header,
                     std::span<const std::byte> elements, Job& job) {
  wire::encode_atp_header(header, packet);
  if (!elements.empty()) {
    std::memcpy(packet.data() + wire::atp_overhead(header.keyed), elements.data(), elements.size());
  }
  if (job.sealer) job.sealer->seal(packet);
}

}  // namespace thalweg::switchd
