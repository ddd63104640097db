#include "switchd/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "net/system.h"

namespace thalweg {
namespace {

using nlohmann::json;

JobKey random_key() {
  std::array<std::byte, kJobKeySize> bytes;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random_number();
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
  return JobKey(bytes);
}

std::string hex_of(const JobKey& key) {
  std::string text;
  for (const std::byte b : key.bytes()) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

// Where packets may go by a socket of this family: to each of the ends, once.
Result<std::vector<SocketAddress>> ends_of(const std::vector<std::string>& texts, const char* field,
                                           int family) {
  std::vector<SocketAddress> ends;
  for (const std::string& text : texts) {
    const Result<SocketAddress> end = SocketAddress::numeric(text);
    if (!end.ok()) return end.error().within(field);
    if (end->port() == 0 || end->wildcard() || end->family() != family) {
      return Error(fmt::format("{}: '{}'; an {} address of one host with a port above 0 is allowed",
                               field, text, family == AF_INET ? "IPv4" : "IPv6"));
    }
    if (std::ranges::find(ends, *end) != ends.end()) {
      return Error(fmt::format("{}: '{}' is there twice", field, text));
    }
    ends.push_back(*end);
  }
  return ends;
}

json counters_json(const SwitchPlane::Counters& counters) {
  json out = json::object();
  for (const auto& [name, count] : counters) out[name] = count;
  return out;
}

json job_json(std::uint32_t id, const JobRequest& request) {
  json out = to_json(request);
  out["job"] = id;
  return out;
}

}  // namespace

AggregateJob aggregate_job(const AdmittedJob& job) {
  return {.id = job.id,
          .groups = job.about.groups,
          .second_level = job.about.second_level,
          .window = job.about.window,
          .slot_limit = job.about.limit};
}

Result<json> Controller::on_request(std::uint64_t client, const json& request) {
  const json token = request.value("token", json(""));
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  if (!config_.token.empty() &&
      !(token.is_string() &&
        same_secret(bytes(token.get_ref<const std::string&>()), bytes(config_.token)))) {
    return Error("token: it is not the switch's");
  }
  const json op = request.value("op", json());
  if (op == "create") return create(client, request);
  if (op == "list") return list();
  if (op == "remove") return remove(request);
  if (op == "stats") return statistics(request);
  return Error(fmt::format("op: {}; create, list, remove or stats is allowed",
                           op.dump(-1, ' ', true, json::error_handler_t::replace)));
}

void Controller::on_closed(std::uint64_t client) {
  std::erase_if(jobs_, [&](const auto& item) {
    const auto& [id, job] = item;
    if (!job.request.lease || job.client != client) return false;
    plane_.remove(id);
    return true;
  });
}

Status Controller::admit(const JobRequest& request) const {
  if (jobs_.size() >= config_.max_jobs) {
    return Error(fmt::format("the switch has {} jobs, as many as it may have", jobs_.size()));
  }
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

// The number of a job in packets. A switch that has given all must be started anew.
Result<std::uint32_t> Controller::number_for(const JobRequest& request) const {
  if (request.id != 0) {
    if (!given_[request.id]) return request.id;
    return Error(
        fmt::format("job: {}; that number was given before, and each is given once", request.id));
  }
  for (std::uint32_t id = last_id_ + 1; id <= kMaxJobId; ++id) {
    if (!given_[id]) return id;
  }
  return Error("the switch has given all identifiers of jobs: start it again");
}

Result<json> Controller::create(std::uint64_t client, const json& request) {
  THALWEG_TRY(const JobRequest wanted, job_request_from(request));
  THALWEG_TRY_STATUS(admit(wanted));
  if (wanted.keyed && wanted.id != 0) {
    return Error(
        "keyed: each switch makes a key of its own, and a job with a number of its own is for "
        "several");
  }
  AdmittedJob job;
  THALWEG_TRY(job.workers, ends_of(wanted.workers, "workers", plane_.family()));
  THALWEG_TRY(job.servers, ends_of(wanted.servers, "servers", plane_.family()));
  THALWEG_TRY(job.id, number_for(wanted));
  job.about = wanted;
  if (wanted.keyed) job.key = random_key();
  THALWEG_TRY_STATUS(plane_.install(job));
  given_[job.id] = true;
  if (wanted.id == 0) last_id_ = job.id;
  jobs_[job.id] = {wanted, client};
  return to_json(JobGrant{.id = job.id,
                          .key = job.key ? hex_of(*job.key) : "",
                          .data = plane_.data_addresses(),
                          .elements = config_.elements});
}

Result<std::uint32_t> Controller::named(const json& request) const {
  const json job = request.value("job", json());
  if (job.is_number_unsigned() && job.get<std::uint64_t>() <= kMaxJobId &&
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
  return {{"jobs", jobs}, {"aggregators", config_.aggregators}, {"elements", config_.elements}};
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

}  // namespace thalweg
