#include "nccl/coll_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "nccl/log.h"
#include "net/atp/admission.h"
#include "net/atp/switch_secrets.h"
#include "net/auth/atp_key.h"
#include "net/io/system.h"

namespace thalweg::nccl {
namespace {

constexpr auto kPause = std::chrono::microseconds(500);
// How long rank 0 waits for switches, for all of the list together.
constexpr Duration kSwitchesTime = Duration::milliseconds(10'000);
// Elements of a packet, if the switch allows so many.
constexpr std::uint32_t kPacketElements = 256;

class Meeting {
 public:
  explicit Meeting(const CollMeeting& plan)
      : plan_(plan), until_(net::monotonic_now() + plan.settings->timeout) {}

  Result<CollParts> hold() {
    parts_.rank = plan_.rank;
    parts_.ranks = plan_.ranks;
    for (int rank = 0; rank < plan_.ranks; ++rank) parts_.lines.emplace_back(net::Fd(), "");
    THALWEG_TRY(parts_.node, net::AtpNode::bind(plan_.device->address));
    THALWEG_TRY_STATUS(plan_.rank == 0 ? receive_all() : visit_rank0());
    return std::move(parts_);
  }

 private:
  [[nodiscard]] CollMember own_member() const {
    return {.rank = plan_.rank,
            .ranks = plan_.ranks,
            .address = parts_.node->address().unmapped().to_string()};
  }
  [[nodiscard]] Error late(const std::string& who) const {
    return Error(ErrorCode::kTimeout,
                 fmt::format("CollNet: {} did not come in time (THALWEG_NCCL_TIMEOUT)", who));
  }

  // Rank 0 calls these.
  Status receive_all();
  void tell_all(const CollMessage& message) {
    for (CollLine& line : parts_.lines) {
      if (line.open()) line.send(message);
    }
    for (CollLine& guest : guests_) guest.send(message);
  }
  Status gather();
  Status take_guest(CollLine& line, const CollMember& member);
  Result<net::AtpJob> admit();

  // The other ranks call these.
  Status visit_rank0();
  Result<CollLine> dial_rank0();
  Result<CollMessage> first_answer(CollLine& line);

  Status join(const CollJob& told);

  const CollMeeting& plan_;
  Time until_;
  CollParts parts_;
  std::vector<std::string> members_;  // addresses of the ATP nodes, by rank
  std::list<CollLine> guests_;        // at rank 0: who has not said which rank it is
};

Status Meeting::receive_all() {
  members_.resize(static_cast<std::size_t>(plan_.ranks));
  members_[0] = own_member().address;
  const Status gathered = gather();
  Result<net::AtpJob> job = gathered.ok() ? admit() : Result<net::AtpJob>(gathered.error());
  if (!job.ok()) {
    tell_all(CollFailure{job.error().code(), job.error().message()});
    return job.error();
  }
  const CollJob told{.job = std::move(*job), .members = members_};
  tell_all(told);
  return join(told);
}

Status Meeting::gather() {
  std::vector<CollMessage> said;
  const auto missing = [&] { return std::ranges::count(members_, std::string()); };
  while (missing() > 0) {
    const Time now = net::monotonic_now();
    if (now >= until_) {
      std::vector<int> ranks;
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        if (members_[static_cast<std::size_t>(rank)].empty()) ranks.push_back(rank);
      }
      return late(fmt::format("rank {}", fmt::join(ranks, ", ")));
    }
    THALWEG_TRY(std::optional<Streams> streams, plan_.listener->advance(now));
    if (streams) guests_.emplace_back(std::move(streams->fds.front()), streams->peer);
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      said.clear();
      THALWEG_TRY(const bool open, guest->read(said));
      if (said.empty() && open) {
        ++guest;
        continue;
      }
      const auto* const member = said.empty() ? nullptr : std::get_if<CollMember>(&said.front());
      if (!open || member == nullptr) {
        return Error(
            ErrorCode::kPeerLost,
            fmt::format("CollNet: a rank at {} gave up while the ranks met", guest->peer()));
      }
      THALWEG_TRY_STATUS(take_guest(*guest, *member));
      guest = guests_.erase(guest);
    }
    if (!streams) std::this_thread::sleep_for(kPause);
  }
  return ok_status();
}

Status Meeting::take_guest(CollLine& line, const CollMember& member) {
  const auto rank = static_cast<std::size_t>(member.rank);
  if (member.ranks != plan_.ranks || !members_[rank].empty()) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("CollNet: {} says that it is rank {} of {}, and rank 0 expects {} "
                             "ranks, each once",
                             line.peer(), member.rank, member.ranks, plan_.ranks));
  }
  members_[rank] = member.address;
  parts_.lines[rank] = std::move(line);
  return ok_status();
}

Result<net::AtpJob> Meeting::admit() {
  // The other ranks need not have the file of the switches' key.
  THALWEG_TRY(const net::SwitchSecrets secrets,
              net::switch_secrets_from(net::process_environment()));
  net::JobRequest request;
  // The random number tells the communicators of one program apart.
  request.name = fmt::format("nccl-{:x}", net::random_number() & 0xffff'ffff);
  request.workers = members_;
  request.servers = members_;
  request.window = net::AtpNodeOptions().window;
  request.lease = true;
  request.own_sums = true;
  net::AtpJob job;
  job.own_sums = true;
  job.servers = static_cast<std::uint32_t>(plan_.ranks);
  if (plan_.settings->key) {
    job.salt = net::random_number();
    request.keyed = true;
    request.key = net::hex_of(net::atp_key(*plan_.settings->key, *job.salt));
  }
  const Time until = net::monotonic_now() + kSwitchesTime;
  std::string names;
  for (const net::ListedSwitch& at : plan_.switches->switches) {
    Result<net::AtpAdmission> admission =
        net::admit_atp_job(at.address, secrets, request, kPacketElements, until);
    if (!admission.ok()) return admission.error().within("CollNet: " + at.text());
    names += (names.empty() ? "" : ", ") + at.text();
    if (!admission->without_room.empty()) names += " (" + admission->without_room + ")";
    if (!admission->lease) continue;
    job.grant = admission->grant;
    request.id = job.grant.id;
    std::vector<net::AtpLease> leases;
    leases.push_back({.address = at.address,
                      .request = request,
                      .grant = job.grant,
                      .client = std::move(admission->lease)});
    parts_.leases = std::make_unique<net::AtpLeases>(std::move(leases), secrets);
    // The others make the key themselves.
    job.grant.key.clear();
    return job;
  }
  return Error(
      ErrorCode::kNoResource,
      fmt::format("CollNet: no switch takes the job (THALWEG_SWITCH): {}; NCCL sums without "
                  "a switch",
                  names));
}

Status Meeting::visit_rank0() {
  THALWEG_TRY(CollLine line, dial_rank0());
  line.send(own_member());
  THALWEG_TRY(const CollMessage answer, first_answer(line));
  parts_.lines[0] = std::move(line);
  if (const auto* const failure = std::get_if<CollFailure>(&answer)) {
    return Error(failure->code, failure->error).within("rank 0");
  }
  const auto* const told = std::get_if<CollJob>(&answer);
  if (told == nullptr) return Error(ErrorCode::kInternal, "CollNet: rank 0 sent a wrong message");
  return join(*told);
}

Result<CollLine> Meeting::dial_rank0() {
  Settings settings = *plan_.settings;
  settings.streams = 1;
  THALWEG_TRY(auto dial, Dial::start(plan_.rank0, settings, *plan_.device, net::monotonic_now()));
  while (true) {
    THALWEG_TRY(std::optional<Streams> streams, dial->advance(net::monotonic_now()));
    if (streams) return CollLine(std::move(streams->fds.front()), streams->peer);
    std::this_thread::sleep_for(kPause);
  }
}

Result<CollMessage> Meeting::first_answer(CollLine& line) {
  // Rank 0 may wait for other ranks, and then for switches.
  const Time until = until_ + kSwitchesTime;
  std::vector<CollMessage> said;
  while (net::monotonic_now() < until) {
    line.flush();
    THALWEG_TRY(const bool open, line.read(said));
    if (!said.empty()) {
      parts_.early.assign(said.begin() + 1, said.end());
      return said.front();
    }
    if (!open) {
      return Error(ErrorCode::kPeerLost,
                   fmt::format("CollNet: rank 0 ({}) gave up while the ranks met; its log says why",
                               line.peer()));
    }
    std::this_thread::sleep_for(kPause);
  }
  return late("the answer of rank 0");
}

Status Meeting::join(const CollJob& told) {
  const net::AtpJob& job = told.job;
  net::AtpNodeOptions node;
  node.rank = plan_.rank;
  node.job = job.grant.id;
  node.servers = static_cast<int>(job.servers);
  node.elements = job.grant.elements;
  node.checks = job.checks;
  node.own_sums = job.own_sums;
  THALWEG_TRY(node.shards, net::numeric_addresses(job.grant.data));
  THALWEG_TRY(node.members, net::numeric_addresses(told.members));
  if (node.members.size() != static_cast<std::size_t>(plan_.ranks)) {
    return Error(ErrorCode::kInternal, "CollNet: rank 0 told of another number of ranks");
  }
  if (job.salt.has_value() != plan_.settings->key.has_value()) {
    return Error(ErrorCode::kMismatch,
                 "CollNet: rank 0 and this rank: one has a job key, and one has none");
  }
  if (job.salt) node.key = net::atp_key(*plan_.settings->key, *job.salt);
  parts_.about = fmt::format("job {} of {} ranks at the switch {}, {} elements in a packet{}",
                             job.grant.id, plan_.ranks, fmt::join(job.grant.data, ", "),
                             job.grant.elements, job.salt ? ", with a job key" : "");
  return parts_.node->join(node);
}

}  // namespace

Result<CollParts> meet(const CollMeeting& meeting) {
  if (meeting.ranks < 2 ||
      static_cast<std::size_t>(meeting.ranks) > wire::kAtpMostWorkersPerGroup) {
    return Error(
        fmt::format("CollNet: {} nodes; from 2 to {} are allowed, and NCCL sums without a switch",
                    meeting.ranks, wire::kAtpMostWorkersPerGroup));
  }
  if (meeting.rank == 0 && meeting.listener == nullptr) {
    return Error(ErrorCode::kInternal, "CollNet: rank 0 has no listener");
  }
  return Meeting(meeting).hold();
}

}  // namespace thalweg::nccl
