#include "switchd/data_plane.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "net/system.h"
#include "tensor/saturating_add.h"

namespace thalweg {
namespace {

// The numbers of a switch's shards among the members of a job: above all workers and servers.
constexpr std::uint16_t kFirstShardMember = 0x8000;
constexpr std::uint32_t kSweptPerTick = 4096;

std::span<const std::byte> as_bytes(const std::int32_t* elements, std::size_t count) {
  return std::as_bytes(std::span(elements, count));
}

// The one that a parameter packet is for, if the places of a job's workers are the bits of its
// sets.
std::optional<std::size_t> only_receiver(const AtpHeader& header, std::size_t workers) {
  if (header.group_count != 1 || header.groups != 0 || std::popcount(header.workers) != 1)
    return {};
  const auto place = static_cast<std::size_t>(std::countr_zero(header.workers));
  return place < workers ? std::optional(place) : std::nullopt;
}

}  // namespace

std::size_t DataPlane::AddressHash::operator()(const SocketAddress& address) const {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(address.get()), address.size()});
}

DataPlane::DataPlane(const AggregateOptions& options, std::uint16_t shard, Output& output)
    : output_(output),
      shard_(shard),
      table_(options),
      stride_(options.slot_elements),
      elements_(std::size_t{options.slots} * stride_) {}

const DataPlane::End* DataPlane::use(const SocketAddress& address) {
  End& end = ends_[address];
  ++end.users;
  return &end;
}

void DataPlane::release(const SocketAddress& address) {
  const auto found = ends_.find(address);
  if (--found->second.users == 0) ends_.erase(found);
}

Status DataPlane::install(const AdmittedJob& about) {
  THALWEG_TRY_STATUS(table_.add_job(aggregate_job(about)));
  Job& job = jobs_[about.id];
  job.about = about;
  for (const SocketAddress& address : about.workers) job.workers.push_back(use(address));
  for (const SocketAddress& address : about.servers) job.servers.push_back(use(address));
  if (about.key) {
    job.sealer.emplace(*about.key,
                       AtpOrigin{.member = static_cast<std::uint16_t>(kFirstShardMember + shard_),
                                 .mark = static_cast<std::uint16_t>(random_number()),
                                 .first_count = random_number()});
    job.verifier.emplace(*about.key);
  }
  return ok_status();
}

void DataPlane::remove(std::uint32_t id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  table_.remove_job(id);
  for (const SocketAddress& address : found->second.about.workers) release(address);
  for (const SocketAddress& address : found->second.about.servers) release(address);
  jobs_.erase(found);
}

DataPlane::Received DataPlane::received_from(const SocketAddress& end) const {
  const auto found = ends_.find(end);
  return found == ends_.end() ? Received{} : found->second.received;
}

void DataPlane::on_tick(Time now) { table_.sweep(now, kSweptPerTick); }

void DataPlane::on_run(const Run& run, const SocketAddress& from, Time now) {
  CHECK(run.packet_size > 0 || run.bytes.empty());
  const auto found = ends_.find(from);
  if (found == ends_.end()) {
    strangers_ += run.bytes.empty() ? 1 : (run.bytes.size() - 1) / run.packet_size + 1;
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
  AtpHeader header;
  if (decode_atp_header(packet, header) != WireError::kNone) {
    ++malformed_;
    return;
  }
  if (context.job == nullptr || context.job->about.id != header.job) {
    const auto found = jobs_.find(header.job);
    if (found == jobs_.end()) {
      ++strangers_;
      return;
    }
    context.job = &found->second;
    const auto is_in = [&](const std::vector<const End*>& ends) {
      return std::ranges::find(ends, context.end) != ends.end();
    };
    context.worker = is_in(context.job->workers);
    context.server = is_in(context.job->servers);
  }
  if (!admit(packet, header, context)) return;
  header.congested = header.congested || run.marked;
  const AggregateAction action = header.kind == AtpKind::kGradient ? table_.on_gradient(header, now)
                                                                   : table_.on_parameter(header);
  act(action, header, packet, *context.job);
}

bool DataPlane::admit(std::span<const std::byte> packet, const AtpHeader& header,
                      const Context& context) {
  Job& job = *context.job;
  const bool up = header.kind == AtpKind::kGradient || header.kind == AtpKind::kUpdate;
  if (!(up ? context.worker : context.server)) {
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

void DataPlane::act(const AggregateAction& action, AtpHeader& header,
                    std::span<const std::byte> packet, Job& job) {
  // The stage may have rewritten the header, but never its length.
  const std::span<const std::byte> elements = atp_payload(packet, header);
  switch (action.payload) {
    case AggregateAction::Payload::kNothing:
      break;
    case AggregateAction::Payload::kStore:
      std::memcpy(slot(action.slot), elements.data(), elements.size());
      break;
    case AggregateAction::Payload::kAdd:
      if (add_saturating(slot(action.slot), elements.data(), header.elements)) {
        if (!action.freed) table_.mark_saturated(action.slot);
        header.saturated = true;
      }
      break;
  }
  switch (action.emit) {
    case AggregateAction::Emit::kNothing:
      break;
    case AggregateAction::Emit::kPacket:
      emit(header, elements, job);
      break;
    case AggregateAction::Emit::kSum:
    case AggregateAction::Emit::kSumToWorkers:
    case AggregateAction::Emit::kSumToSender:
      emit(header, as_bytes(slot(action.slot), header.elements), job);
      break;
  }
}

void DataPlane::emit(const AtpHeader& header, std::span<const std::byte> elements, Job& job) {
  const std::size_t size = atp_packet_size(header);
  const std::span<std::byte> out =
      header.kind == AtpKind::kGradient
          ? output_.to_server(header.job, header.sequence, size)
          : output_.to_workers(header.job, only_receiver(header, job.workers.size()), size);
  encode_atp_header(header, out);
  if (!elements.empty()) {
    std::memcpy(out.data() + atp_overhead(header.keyed), elements.data(), elements.size());
  }
  if (job.sealer) job.sealer->seal(out);
}

}  // namespace thalweg
