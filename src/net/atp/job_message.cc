#include "net/atp/job_message.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "net/io/address.h"
#include "wire/atp_packet.h"
#include "wire/authenticate.h"

namespace thalweg::net {
namespace {

using nlohmann::json;

Error bad_field(const char* field, const json& value, const std::string& allowed) {
  constexpr std::size_t kShown = 100;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "…";
  return Error(fmt::format("{}: {}; {} is allowed", field, text, allowed));
}

Result<std::vector<std::string>> addresses_from(const json& fields, const char* field,
                                                std::size_t least, std::size_t most) {
  const json value = fields.value(field, json());
  const std::string allowed = fmt::format("a list of {} to {} \"host:port\"", least, most);
  if (!value.is_array() || value.size() < least || value.size() > most) {
    return bad_field(field, value, allowed);
  }
  std::vector<std::string> addresses;
  for (const json& item : value) {
    if (!item.is_string()) return bad_field(field, item, allowed);
    const std::string text = item.get<std::string>();
    if (const auto parsed = HostPort::parse(text); !parsed.ok()) {
      return parsed.error().within(field);
    }
    addresses.push_back(text);
  }
  return addresses;
}

Result<std::uint32_t> whole_from(const json& fields, const char* field, std::uint32_t otherwise,
                                 std::uint32_t least = 0, std::uint32_t most = 0xffff'ffff) {
  if (!fields.contains(field)) return otherwise;
  const json& value = fields.at(field);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most ||
      value.get<std::uint64_t>() < least) {
    return bad_field(field, value, fmt::format("a whole number from {} to {}", least, most));
  }
  return value.get<std::uint32_t>();
}

// A list of whole numbers from `least` to `most`, at most `count` of them; empty if there is none.
Result<std::vector<std::uint32_t>> numbers_from(const json& fields, const char* field,
                                                std::size_t count, std::uint32_t least,
                                                std::uint32_t most) {
  const json value = fields.value(field, json::array());
  const auto allowed = [&](const json& item) {
    return item.is_number_unsigned() && item.get<std::uint64_t>() >= least &&
           item.get<std::uint64_t>() <= most;
  };
  if (!value.is_array() || value.size() > count || !std::ranges::all_of(value, allowed)) {
    return bad_field(field, value,
                     fmt::format("a list of up to {} numbers from {} to {}", count, least, most));
  }
  return value.get<std::vector<std::uint32_t>>();
}

std::size_t sum_of(const std::vector<std::uint32_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::size_t{0});
}

Result<std::vector<std::uint16_t>> ports_from(const json& value, const char* field) {
  const auto is_port = [](const json& item) {
    return item.is_number_unsigned() && item.get<std::uint64_t>() >= 1 &&
           item.get<std::uint64_t>() <= 0xffff;
  };
  if (!value.is_array() || value.size() >= wire::kAtpMostPaths ||
      !std::ranges::all_of(value, is_port)) {
    return bad_field(
        field, value,
        fmt::format("a list of up to {} ports from 1 to 65535", wire::kAtpMostPaths - 1));
  }
  std::vector<std::uint16_t> ports = value.get<std::vector<std::uint16_t>>();
  std::vector<std::uint16_t> sorted = ports;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) {
    return bad_field(field, value, "each port once");
  }
  return ports;
}

// Each end must be one of the request, and all have as many ports.
Result<std::map<std::string, std::vector<std::uint16_t>>> sources_from(const json& fields,
                                                                       const JobRequest& request) {
  const json value = fields.value("sources", json::object());
  if (!value.is_object()) {
    return bad_field("sources", value, "an object with a list of ports for each \"host:port\"");
  }
  std::map<std::string, std::vector<std::uint16_t>> sources;
  for (const auto& [end, list] : value.items()) {
    const bool known = std::ranges::find(request.workers, end) != request.workers.end() ||
                       std::ranges::find(request.servers, end) != request.servers.end();
    if (!known) return bad_field("sources", json(end), "one of 'workers' or 'servers'");
    THALWEG_TRY(std::vector<std::uint16_t> ports, ports_from(list, "sources"));
    if (ports.empty()) return bad_field("sources", list, "one port or more");
    if (!sources.empty() && sources.begin()->second.size() != ports.size()) {
      return bad_field("sources", list, "the same number of ports for each end");
    }
    sources.emplace(end, std::move(ports));
  }
  return sources;
}

Result<bool> flag_from(const json& fields, const char* field) {
  if (!fields.contains(field)) return false;
  if (!fields.at(field).is_boolean()) return bad_field(field, fields.at(field), "true or false");
  return fields.at(field).get<bool>();
}

Result<std::string> text_from(const json& fields, const char* field, std::size_t most) {
  const json value = fields.value(field, json(""));
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most) {
    return bad_field(field, value, fmt::format("a text of up to {} bytes", most));
  }
  return value.get<std::string>();
}

// Never shows the value, which is a secret.
Result<std::string> key_from(const json& fields) {
  const json value = fields.value("key", json(""));
  if (value == "") return std::string();
  if (!value.is_string() || !wire::JobKey::from_hex(value.get<std::string>()).ok()) {
    return Error("key: 32 hexadecimal digits are allowed");
  }
  return value.get<std::string>();
}

}  // namespace

json to_json(const JobRequest& request) {
  json fields = {{"job", request.id},
                 {"name", request.name},
                 {"workers", request.workers},
                 {"servers", request.servers},
                 {"limit", request.limit},
                 {"window", request.window},
                 {"groups", request.groups},
                 {"keyed", request.keyed},
                 {"second_level", request.second_level},
                 {"own_sums", request.own_sums},
                 {"lease", request.lease}};
  if (!request.key.empty()) fields["key"] = request.key;
  if (!request.sources.empty()) fields["sources"] = request.sources;
  if (!request.group_ends.empty()) fields["group_ends"] = request.group_ends;
  return fields;
}

Result<JobRequest> job_request_from(const json& fields) {
  for (const auto& [field, value] : fields.items()) {
    static constexpr const char* kKnown[] = {"op",       "job",     "token",        "name",
                                             "workers",  "servers", "limit",        "window",
                                             "own_sums", "groups",  "second_level", "keyed",
                                             "key",      "lease",   "sources",      "group_ends"};
    if (std::ranges::find(kKnown, field) == std::end(kKnown)) {
      return bad_field(field.c_str(), value, "none of that name");
    }
  }
  JobRequest request;
  THALWEG_TRY(request.id, whole_from(fields, "job", 0, 0, kMaxJobId));
  THALWEG_TRY(request.name, text_from(fields, "name", kMaxJobName));
  THALWEG_TRY(request.workers, addresses_from(fields, "workers", 1, kMaxJobWorkers));
  THALWEG_TRY(request.servers, addresses_from(fields, "servers", 1, kMaxJobServers));
  THALWEG_TRY(request.sources, sources_from(fields, request));
  THALWEG_TRY(request.limit, whole_from(fields, "limit", 0));
  THALWEG_TRY(request.window, whole_from(fields, "window", request.window, 1));
  THALWEG_TRY(request.groups, whole_from(fields, "groups", request.groups));
  THALWEG_TRY(request.group_ends, numbers_from(fields, "group_ends", wire::kAtpMostGroups, 0,
                                               wire::kAtpMostWorkersPerGroup));
  if (!request.group_ends.empty() && sum_of(request.group_ends) != request.workers.size()) {
    return bad_field("group_ends", fields.at("group_ends"), "as many as 'workers' in all");
  }
  THALWEG_TRY(request.second_level, flag_from(fields, "second_level"));
  THALWEG_TRY(request.own_sums, flag_from(fields, "own_sums"));
  if (request.groups == 0 && !request.second_level) {
    return Error("groups: 0 at a switch that is not of the second level; it would add nothing");
  }
  THALWEG_TRY(request.keyed, flag_from(fields, "keyed"));
  THALWEG_TRY(request.key, key_from(fields));
  if (!request.key.empty() && !request.keyed) return Error("key: of a job that is not 'keyed'");
  THALWEG_TRY(request.lease, flag_from(fields, "lease"));
  return request;
}

json to_json(const JobGrant& grant) {
  json fields{
      {"job", grant.id}, {"key", grant.key}, {"data", grant.data}, {"elements", grant.elements}};
  if (!grant.sources.empty()) fields["sources"] = grant.sources;
  return fields;
}

Result<JobGrant> job_grant_from(const json& fields) {
  constexpr std::size_t kKeyDigits = 32;
  constexpr std::size_t kMaxShards = 256;
  JobGrant grant;
  THALWEG_TRY(grant.id, whole_from(fields, "job", 0));
  THALWEG_TRY(grant.key, text_from(fields, "key", kKeyDigits));
  THALWEG_TRY(grant.data, addresses_from(fields, "data", 0, kMaxShards));
  THALWEG_TRY(grant.elements, whole_from(fields, "elements", 1, 1, wire::kAtpMostElements));
  THALWEG_TRY(grant.sources, ports_from(fields.value("sources", json::array()), "sources"));
  return grant;
}

json to_json(const AtpJob& job) {
  json fields = to_json(job.grant);
  fields["servers"] = job.servers;
  fields["order"] = job.order;
  fields["groups"] = job.groups;
  fields["switches"] = job.switches;
  fields["paths"] = job.paths;
  if (job.salt) fields["salt"] = *job.salt;
  if (!job.checks) fields["unchecked"] = true;
  if (job.own_sums) fields["own_sums"] = true;
  return fields;
}

Result<AtpJob> atp_job_from(const json& fields) {
  AtpJob job;
  THALWEG_TRY(job.grant, job_grant_from(fields));
  THALWEG_TRY(job.servers, whole_from(fields, "servers", 1, 1, kMaxJobServers));
  if (fields.contains("salt")) {
    if (!fields.at("salt").is_number_unsigned()) {
      return bad_field("salt", fields.at("salt"), "a whole number");
    }
    job.salt = fields.at("salt").get<std::uint64_t>();
  }
  THALWEG_TRY(const bool unchecked, flag_from(fields, "unchecked"));
  job.checks = !unchecked;
  THALWEG_TRY(job.own_sums, flag_from(fields, "own_sums"));
  THALWEG_TRY(job.order, numbers_from(fields, "order", kMaxJobWorkers, 0, kMaxJobWorkers - 1));
  std::vector<std::uint32_t> sorted = job.order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != i) return bad_field("order", fields.at("order"), "each rank once");
  }
  THALWEG_TRY(job.paths, whole_from(fields, "paths", 1, 1, wire::kAtpMostPaths));
  THALWEG_TRY(job.groups, numbers_from(fields, "groups", wire::kAtpMostGroups, 1,
                                       wire::kAtpMostWorkersPerGroup));
  if (job.groups.empty()) return job;
  if (sum_of(job.groups) != job.order.size()) {
    return bad_field("groups", fields.at("groups"), "as many ranks as in 'order'");
  }
  const std::size_t switches = job.grant.data.empty() ? 0 : job.groups.size();
  THALWEG_TRY(job.switches, addresses_from(fields, "switches", switches, switches));
  return job;
}

}  // namespace thalweg::net
