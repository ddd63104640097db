#include "net/ps/words.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "net/io/control_connection.h"
#include "proto/dlcp/loss_bound.h"
#include "wire/authenticate.h"

namespace thalweg::net {
namespace {

using nlohmann::json;

std::string text_of(const json& fields) {
  return fields.dump(-1, ' ', true, json::error_handler_t::replace);
}

Error bad(const char* what) {
  return {ErrorCode::kInternal, fmt::format("its {} does not make sense", what)};
}

}  // namespace

std::string to_text(const PsWelcome& welcome) {
  return text_of({{"transport", name_of(welcome.transport)},
                  {"port", welcome.port},
                  {"token", welcome.token},
                  {"key", welcome.key},
                  {"name", welcome.name},
                  {"push_loss", welcome.push_loss},
                  {"pull_loss", welcome.pull_loss}});
}

Result<PsWelcome> ps_welcome_from(const std::string& text) {
  constexpr std::uint64_t kMostPort = 0xffff;
  const json fields = json::parse(text, nullptr, false);
  if (!fields.is_object()) return bad("welcome");
  const auto whole = [&](const char* field, std::uint64_t most) {
    const json value = fields.value(field, json());
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= most;
  };
  const auto loss = [&](const char* field) {
    const json value = fields.value(field, json());
    return value.is_number() && proto::LossBound::of(value.get<double>()).ok();
  };
  if (!whole("port", kMostPort) || !whole("token", ~std::uint64_t{0}) || !loss("push_loss") ||
      !loss("pull_loss") || !fields.value("name", json()).is_string() ||
      !fields.value("key", json("")).is_string()) {
    return bad("welcome");
  }
  PsWelcome welcome;
  welcome.port = fields["port"].get<std::uint16_t>();
  welcome.token = fields["token"].get<std::uint64_t>();
  welcome.name = fields["name"].get<std::string>();
  welcome.key = fields.value("key", "");
  if (!welcome.key.empty() && !wire::JobKey::from_hex(welcome.key).ok()) return bad("welcome");
  welcome.push_loss = fields["push_loss"].get<double>();
  welcome.pull_loss = fields["pull_loss"].get<double>();
  for (const Transport transport : {Transport::kTcp, Transport::kDlcp, Transport::kAtp}) {
    if (fields.value("transport", json()) != name_of(transport)) continue;
    welcome.transport = transport;
    return welcome;
  }
  return bad("welcome");
}

std::string to_text(const AtpGroupGrant& group) {
  json fields = to_json(group.job);
  fields["group"] = group.number;
  fields["workers"] = group.workers;
  fields["server"] = group.server;
  return text_of(fields);
}

Result<AtpGroupGrant> atp_group_from(const std::string& text) {
  THALWEG_TRY(const json fields, parse_control_line(text));
  AtpGroupGrant group;
  THALWEG_TRY(group.job, job_grant_from(fields));
  const json workers = fields.value("workers", json());
  const json number = fields.value("group", json());
  const json server = fields.value("server", json());
  if (!workers.is_array() || !number.is_number_unsigned() || !server.is_string()) {
    return bad("group");
  }
  for (const json& worker : workers) {
    if (!worker.is_string()) return bad("group");
    group.workers.push_back(worker.get<std::string>());
  }
  group.number = number.get<std::uint64_t>();
  group.server = server.get<std::string>();
  return group;
}

Status fill_from(const AtpGroupGrant& group, AtpNodeOptions& options) {
  options.job = group.job.id;
  options.elements = group.job.elements;
  THALWEG_TRY(options.members, numeric_addresses(group.workers));
  THALWEG_TRY(options.shards, numeric_addresses(group.job.data));
  THALWEG_TRY(options.server_apart, SocketAddress::numeric(group.server));
  if (!group.job.key.empty()) {
    THALWEG_TRY(options.key, wire::JobKey::from_hex(group.job.key));
  }
  return ok_status();
}

}  // namespace thalweg::net
