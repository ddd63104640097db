#include "switchd/controller.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "net/auth/atp_key.h"
#include "net/io/system.h"

namespace thalweg::switchd {
namespace {

using nlohmann::json;

wire::JobKey random_key() {
  std::array<std::byte, wire::kJobKeySize> bytes;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = net::random_number();
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
  return wire::JobKey(bytes);
}

// An end of a job must be one host that is not the switch itself: whatever the switch sent to its
// own data socket would come back as a member's packet, and be sent again for ever.
Status check_end(const net::SocketAddress& end, const std::string& text, const SwitchPlane& plane) {
  if (end.port() == 0 || end.wildcard() || end.family() != plane.family()) {
    return Error(fmt::format("'{}'; an {} address of one host with a port above 0 is allowed", text,
                             plane.family() == AF_INET ? "IPv4" : "IPv6"));
  }
  if (end.multicast() || end.broadcast()) {
    return Error(fmt::format("'{}' is a {} address; the address of one host is allowed", text,
                             end.multicast() ? "multicast" : "broadcast"));
  }
  if (plane.own(end)) {
    return Error(fmt::format(
        "'{}' is a data address of this switch, which would send to itself for ever; the address "
        "of a worker, a server or another switch is allowed",
        text));
  }
  if (plane.control(end)) {
    return Error(fmt::format(
        "'{}' is the control address of this switch; the address of a worker, a server or another "
        "switch is allowed",
        text));
  }
  return ok_status();
}

// Parses the addresses of a job's ends; each may occur once.
Result<std::vector<net::SocketAddress>> ends_of(const std::vector<std::string>& texts,
                                                const char* field, const SwitchPlane& plane) {
  std::vector<net::SocketAddress> ends;
  for (const std::string& text : texts) {
    const Result<net::SocketAddress> end = net::SocketAddress::numeric(text);
    if (!end.ok()) return end.error().within(field);
    if (const Status status = check_end(*end, text, plane); !status.ok()) {
      return status.error().within(field);
    }
    if (std::ranges::find(ends, *end) != ends.end()) {
      return Error(fmt::format("{}: '{}' is there twice", field, text));
    }
    ends.push_back(*end);
  }
  return ends;
}

// Parses the further addresses of ends that are switches.
// Each address may occur once in the job.
Result<std::vector<AdmittedJob::Sources>> sources_of(const AdmittedJob& job,
                                                     const SwitchPlane& plane) {
  std::vector<AdmittedJob::Sources> all;
  std::vector<net::SocketAddress> known = job.workers;
  known.insert(known.end(), job.servers.begin(), job.servers.end());
  for (const auto& [text, ports] : job.about.sources) {
    if (ports.size() > plane.source_ports().size()) {
      return Error(
          fmt::format("sources: {} ports of '{}'; this switch has {} beside its first "
                      "('paths' of its configuration), and as many are allowed",
                      ports.size(), text, plane.source_ports().size()));
    }
    THALWEG_TRY(const net::SocketAddress end, net::SocketAddress::numeric(text));
    AdmittedJob::Sources& sources = all.emplace_back(end, std::vector<net::SocketAddress>());
    for (const std::uint16_t port : ports) {
      net::SocketAddress from = end;
      from.set_port(port);
      if (const Status status = check_end(from, from.to_string(), plane); !status.ok()) {
        return status.error().within("sources");
      }
      if (std::ranges::find(known, from) != known.end()) {
        return Error(fmt::format("sources: '{}' is there twice", from.to_string()));
      }
      known.push_back(from);
      sources.from.push_back(from);
    }
  }
  return all;
}

json counters_json(const SwitchPlane::Counters& counters) {
  json out = json::object();
  for (const auto& [name, count] : counters) out[name] = count;
  return out;
}

// A number that changes with every packet of a member. Packets that are refused do not count:
// strangers must not keep a job alive.
std::uint64_t packets_in(const SwitchPlane::Counters& counters) {
  constexpr std::array<std::string_view, 3> kRefused{"foreign", "keying", "forged"};
  std::uint64_t sum = 0;
  for (const auto& [name, count] : counters) {
    if (std::ranges::find(kRefused, name) == kRefused.end()) sum += count;
  }
  return sum;
}

json job_json(std::uint32_t id, const net::JobRequest& request) {
  json out = net::to_json(request);
  out["job"] = id;
  out.erase("key");  // a secret of the job's members
  return out;
}

}  // namespace

std::vector<net::SocketAddress> AdmittedJob::addresses_of(const net::SocketAddress& end) const {
  std::vector<net::SocketAddress> addresses{end};
  for (const Sources& each : sources) {
    if (each.end == end) addresses.insert(addresses.end(), each.from.begin(), each.from.end());
  }
  return addresses;
}

switches::AggregateJob aggregate_job(const AdmittedJob& job) {
  return {.id = job.id,
          .groups = job.about.groups,
          .second_level = job.about.second_level,
          .window = job.about.window,
          .slot_limit = job.about.limit};
}

Result<json> Controller::on_request(const ControlServer::Requester& from, const json& request) {
  if (!rate_.admit(from.host, from.now)) {
    return Error(ErrorCode::kNoResource,
                 fmt::format("{} has sent more than {} requests in a second, as many as the switch "
                             "serves of one host (requests_per_second): ask less often",
                             from.host, config_.requests_per_second));
  }
  if (!may_ask(request)) {
    return Error(fmt::format(
        "token: {}; the one of this switch is allowed, which is in its configuration or which it "
        "printed at its start (for jobs: THALWEG_SWITCH_TOKEN; for `thalweg job`: --token; for "
        "`thalweg ps`: 'token')",
        request.value("token", json("")) == "" ? "the request has none"
                                               : "it is not the switch's"));
  }
  const json op = request.value("op", json());
  if (op == "create") return create(from, request);
  if (op == "list") return list();
  if (op == "remove") return remove(request);
  if (op == "stats") return statistics(request);
  if (op == "room") return json{{"room", room_for(from.host).ok() && next_number().has_value()}};
  return Error(fmt::format("op: {}; create, list, remove, room or stats is allowed",
                           op.dump(-1, ' ', true, json::error_handler_t::replace)));
}

bool Controller::may_ask(const json& request) const {
  const std::string own = config_.token.value_or("");
  const json token = request.value("token", json(""));
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  return own.empty() || (token.is_string() &&
                         wire::same_secret(bytes(token.get_ref<const std::string&>()), bytes(own)));
}

void Controller::on_closed(std::uint64_t client) {
  std::erase_if(jobs_, [&](const auto& item) {
    const auto& [id, job] = item;
    if (!job.request.lease || job.client != client) return false;
    plane_.remove(id);
    return true;
  });
}

std::optional<Time> Controller::on_timeout(Time now) {
  std::optional<Time> next;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const auto here = at++;
    Job& job = here->second;
    if (job.request.lease) continue;
    if (now >= job.looked_at_next) {
      const std::uint64_t packets = packets_in(plane_.statistics(here->first).counters);
      if (packets == job.packets) {
        plane_.remove(here->first);
        jobs_.erase(here);
        continue;
      }
      job.packets = packets;
      job.looked_at_next = now + idle_time();
    }
    next = next ? std::min(*next, job.looked_at_next) : job.looked_at_next;
  }
  return next;
}

Status Controller::room_for(const std::string& host) const {
  if (jobs_.size() >= config_.max_jobs) {
    return Error(ErrorCode::kNoResource,
                 fmt::format("the switch has {} jobs, as many as it may have", jobs_.size()));
  }
  const auto of_host =
      std::ranges::count_if(jobs_, [&](const auto& item) { return item.second.host == host; });
  if (of_host >= config_.max_jobs_per_host) {
    return Error(ErrorCode::kNoResource,
                 fmt::format("{} has {} jobs at the switch, as many as one host may have "
                             "(max_jobs_per_host)",
                             host, of_host));
  }
  return ok_status();
}

Status Controller::admit(const net::JobRequest& request, const std::string& host) const {
  THALWEG_TRY_STATUS(room_for(host));
  if (request.limit > config_.aggregators) {
    return Error(fmt::format("limit: {}; the switch has {} aggregators", request.limit,
                             config_.aggregators));
  }
  for (const auto& [id, job] : jobs_) {
    if (!request.name.empty() && job.request.name == request.name) {
      return Error(fmt::format("name: '{}' is that of job {}", request.name, id));
    }
  }
  return ok_status();
}

// The job's identifier in packets. A switch that has given all identifiers must be restarted.
Result<std::uint32_t> Controller::number_for(const net::JobRequest& request) const {
  if (request.id != 0) {
    if (!given_[request.id]) return request.id;
    return Error(fmt::format("job: {}; {}, and each is given once", request.id, net::kNumberTaken));
  }
  if (const std::optional<std::uint32_t> next = next_number()) return *next;
  return Error(ErrorCode::kNoResource,
               "the switch has given all identifiers of jobs: start it again");
}

std::optional<std::uint32_t> Controller::next_number() const {
  for (std::uint32_t id = last_id_ + 1; id <= net::kMaxJobId; ++id) {
    if (!given_[id]) return id;
  }
  return std::nullopt;
}

Result<json> Controller::create(const ControlServer::Requester& from, const json& request) {
  THALWEG_TRY(const net::JobRequest wanted, net::job_request_from(request));
  THALWEG_TRY_STATUS(admit(wanted, from.host));
  if (wanted.keyed && wanted.key.empty() && wanted.id != 0) {
    return Error(
        "keyed: each switch makes a key of its own, and a job with a number of its own is for "
        "several; give them all one 'key'");
  }
  AdmittedJob job;
  THALWEG_TRY(job.workers, ends_of(wanted.workers, "workers", plane_));
  THALWEG_TRY(job.servers, ends_of(wanted.servers, "servers", plane_));
  job.about = wanted;
  THALWEG_TRY(job.sources, sources_of(job, plane_));
  THALWEG_TRY(job.id, number_for(wanted));
  if (wanted.keyed && wanted.key.empty()) job.key = random_key();
  if (!wanted.key.empty()) {
    THALWEG_TRY(job.key, wire::JobKey::from_hex(wanted.key));
  }
  THALWEG_TRY_STATUS(plane_.install(job));
  given_[job.id] = true;
  if (wanted.id == 0) last_id_ = job.id;
  jobs_[job.id] = {.request = wanted,
                   .client = from.client,
                   .host = from.host,
                   .looked_at_next = from.now + idle_time()};
  return net::to_json(net::JobGrant{.id = job.id,
                                    .key = job.key ? net::hex_of(*job.key) : "",
                                    .data = plane_.data_addresses(),
                                    .elements = config_.elements});
}

Result<std::uint32_t> Controller::named(const json& request) const {
  const json job = request.value("job", json());
  if (job.is_number_unsigned() && job.get<std::uint64_t>() <= net::kMaxJobId &&
      jobs_.contains(job.get<std::uint32_t>())) {
    return job.get<std::uint32_t>();
  }
  return Error(fmt::format("job: {}; the switch has no such job",
                           job.dump(-1, ' ', true, json::error_handler_t::replace)));
}

Result<json> Controller::remove(const json& request) {
  THALWEG_TRY(const std::uint32_t id, named(request));
  plane_.remove(id);
  jobs_.erase(id);
  return json::object();
}

json Controller::list() const {
  json jobs = json::array();
  for (const auto& [id, job] : jobs_) jobs.push_back(job_json(id, job.request));
  return {{"jobs", jobs},
          {"aggregators", config_.aggregators},
          {"elements", config_.elements},
          {"data", plane_.data_addresses()},
          {"sources", plane_.source_ports()}};
}

Result<json> Controller::statistics(const json& request) {
  std::vector<std::uint32_t> ids;
  if (request.contains("job")) {
    THALWEG_TRY(const std::uint32_t id, named(request));
    ids.push_back(id);
  } else {
    for (const auto& [id, job] : jobs_) ids.push_back(id);
  }
  json jobs = json::array();
  for (const std::uint32_t id : ids) {
    const SwitchPlane::JobStatistics statistics = plane_.statistics(id);
    json ports = json::array();
    for (const SwitchPlane::Port& port : statistics.ports) {
      json entry = counters_json(port.counters);
      entry["address"] = port.address;
      ports.push_back(entry);
    }
    jobs.push_back({{"job", id},
                    {"name", jobs_.at(id).request.name},
                    {"counters", counters_json(statistics.counters)},
                    {"ports", ports}});
  }
  return json{{"jobs", jobs}, {"switch", counters_json(plane_.counters())}};
}

}  // namespace thalweg::switchd
