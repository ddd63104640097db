#include "nccl/coll_message.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "net/io/address.h"
#include "net/io/control_connection.h"

namespace thalweg::nccl {
namespace {

using nlohmann::json;

json fields_of(const CollMember& member) {
  return {{"is", "member"},
          {"rank", member.rank},
          {"ranks", member.ranks},
          {"address", member.address}};
}
json fields_of(const CollJob& told) {
  return {{"is", "job"}, {"job", net::to_json(told.job)}, {"members", told.members}};
}
json fields_of(const CollReport& report) {
  return {{"is", "report"},
          {"posted", report.posted},
          {"finished", report.finished},
          {"calls", report.calls}};
}
json fields_of(const CollFinished& finished) {
  return {{"is", "finished"}, {"count", finished.count}};
}
json fields_of(const CollFailure& failure) {
  json fields = net::refusal_of(Error(failure.code, failure.error));
  fields["is"] = "failure";
  return fields;
}
json fields_of(const CollBye& bye) { return {{"is", "bye"}, {"finished", bye.finished}}; }

Result<std::uint64_t> count_in(const json& fields, const char* field,
                               std::uint64_t most = UINT64_MAX) {
  const json value = fields.value(field, json());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    return Error(ErrorCode::kInternal,
                 fmt::format("{}: {}; a whole number up to {} is allowed", field,
                             value.dump(-1, ' ', true, json::error_handler_t::replace), most));
  }
  return value.get<std::uint64_t>();
}

Result<std::string> address_in(const json& value) {
  if (!value.is_string()) {
    return Error(ErrorCode::kInternal, "address: a numeric \"host:port\" is allowed");
  }
  auto text = value.get<std::string>();
  const auto numeric = net::SocketAddress::numeric(text);
  if (!numeric.ok()) return numeric.error().within("address");
  return text;
}

Result<CollMessage> member_in(const json& fields) {
  CollMember member;
  THALWEG_TRY(const std::uint64_t ranks, count_in(fields, "ranks", wire::kAtpMostWorkersPerGroup));
  THALWEG_TRY(const std::uint64_t rank, count_in(fields, "rank", wire::kAtpMostWorkersPerGroup));
  if (rank >= ranks) {
    return Error(ErrorCode::kInternal, fmt::format("rank: {}; there are {} ranks", rank, ranks));
  }
  THALWEG_TRY(member.address, address_in(fields.value("address", json())));
  member.rank = static_cast<int>(rank);
  member.ranks = static_cast<int>(ranks);
  return CollMessage(member);
}

Result<CollMessage> job_in(const json& fields) {
  const json job = fields.value("job", json());
  if (!job.is_object()) return Error(ErrorCode::kInternal, "job: it is missing");
  CollJob told;
  THALWEG_TRY(told.job, net::atp_job_from(job));
  const json members = fields.value("members", json());
  if (!members.is_array() || members.empty() || members.size() > wire::kAtpMostWorkersPerGroup) {
    return Error(ErrorCode::kInternal, fmt::format("members: a list of 1 to {} is allowed",
                                                   wire::kAtpMostWorkersPerGroup));
  }
  for (const json& member : members) {
    THALWEG_TRY(std::string address, address_in(member));
    told.members.push_back(std::move(address));
  }
  if (told.job.servers > told.members.size()) {
    return Error(ErrorCode::kInternal, fmt::format("servers: {}; there are {} members",
                                                   told.job.servers, told.members.size()));
  }
  return CollMessage(std::move(told));
}

Result<CollMessage> report_in(const json& fields) {
  CollReport report;
  THALWEG_TRY(report.posted, count_in(fields, "posted"));
  THALWEG_TRY(report.finished, count_in(fields, "finished", report.posted));
  THALWEG_TRY(report.calls, count_in(fields, "calls"));
  return CollMessage(report);
}

}  // namespace

std::string coll_line_of(const CollMessage& message) {
  const json fields = std::visit([](const auto& one) { return fields_of(one); }, message);
  return fields.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

Result<CollMessage> coll_message_from(std::string_view line) {
  THALWEG_TRY(const json fields, net::parse_control_line(line));
  const json is = fields.value("is", json());
  const std::string kind = is.is_string() ? is.get<std::string>() : "";
  if (kind == "member") return member_in(fields);
  if (kind == "job") return job_in(fields);
  if (kind == "report") return report_in(fields);
  if (kind == "finished") {
    THALWEG_TRY(const std::uint64_t count, count_in(fields, "count"));
    return CollMessage(CollFinished{count});
  }
  if (kind == "failure") {
    const json error = fields.value("error", json());
    if (!error.is_string()) return Error(ErrorCode::kInternal, "error: a text is allowed");
    const Error said = net::refusal_in(fields);
    return CollMessage(CollFailure{said.code(), said.message()});
  }
  if (kind == "bye") {
    THALWEG_TRY(const std::uint64_t finished, count_in(fields, "finished"));
    return CollMessage(CollBye{finished});
  }
  return Error(ErrorCode::kInternal,
               "is: unknown; member, job, report, finished, failure and bye are allowed");
}

}  // namespace thalweg::nccl
