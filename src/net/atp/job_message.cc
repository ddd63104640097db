#include "net/atp/job_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "net/address.h"
#include "wire/atp_packet.h"

namespace thalweg {
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

}  // namespace

json to_json(const JobRequest& request) {
  return {{"job", request.id},
          {"name", request.name},
          {"workers", request.workers},
          {"servers", request.servers},
          {"limit", request.limit},
          {"window", request.window},
          {"groups", request.groups},
          {"keyed", request.keyed},
          {"second_level", request.second_level},
          {"lease", request.lease}};
}

Result<JobRequest> job_request_from(const json& fields) {
  for (const auto& [field, value] : fields.items()) {
    static constexpr const char* kKnown[] = {"op",      "job",          "token", "name",
                                             "workers", "servers",      "limit", "window",
                                             "groups",  "second_level", "keyed", "lease"};
    if (std::ranges::find(kKnown, field) == std::end(kKnown)) {
      return bad_field(field.c_str(), value, "none of that name");
    }
  }
  JobRequest request;
  THALWEG_TRY(request.id, whole_from(fields, "job", 0, 0, kMaxJobId));
  THALWEG_TRY(request.name, text_from(fields, "name", kMaxJobName));
  THALWEG_TRY(request.workers, addresses_from(fields, "workers", 1, kMaxJobWorkers));
  THALWEG_TRY(request.servers, addresses_from(fields, "servers", 1, kMaxJobServers));
  THALWEG_TRY(request.limit, whole_from(fields, "limit", 0));
  THALWEG_TRY(request.window, whole_from(fields, "window", request.window, 1));
  THALWEG_TRY(request.groups, whole_from(fields, "groups", request.groups));
  THALWEG_TRY(request.second_level, flag_from(fields, "second_level"));
  if (request.groups == 0 && !request.second_level) {
    return Error("groups: 0 at a switch that is not of the second level; it would add nothing");
  }
  THALWEG_TRY(request.keyed, flag_from(fields, "keyed"));
  THALWEG_TRY(request.lease, flag_from(fields, "lease"));
  return request;
}

json to_json(const JobGrant& grant) {
  return {
      {"job", grant.id}, {"key", grant.key}, {"data", grant.data}, {"elements", grant.elements}};
}

Result<JobGrant> job_grant_from(const json& fields) {
  constexpr std::size_t kKeyDigits = 32;
  constexpr std::size_t kMaxShards = 256;
  JobGrant grant;
  THALWEG_TRY(grant.id, whole_from(fields, "job", 0));
  THALWEG_TRY(grant.key, text_from(fields, "key", kKeyDigits));
  THALWEG_TRY(grant.data, addresses_from(fields, "data", 0, kMaxShards));
  THALWEG_TRY(grant.elements, whole_from(fields, "elements", 1, 1, kAtpMostElements));
  return grant;
}

json to_json(const AtpJob& job) {
  json fields = to_json(job.grant);
  fields["servers"] = job.servers;
  return fields;
}

Result<AtpJob> atp_job_from(const json& fields) {
  AtpJob job;
  THALWEG_TRY(job.grant, job_grant_from(fields));
  THALWEG_TRY(job.servers, whole_from(fields, "servers", 1, 1, kMaxJobServers));
  return job;
}

Result<json> parse_control_line(std::string_view line) {
  json value = json::parse(line, nullptr, false);
  if (!value.is_object()) return Error("a line must be a JSON object");
  return value;
}

}  // namespace thalweg
