#include "net/atp/switch_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/auth/greeting.h"
#include "net/io/address.h"
#include "net/io/tcp.h"

namespace thalweg::net {

using nlohmann::json;

namespace {

constexpr const char* kKeylessSwitch =
    "Start the switch with --key-file, or set THALWEG_SWITCH_KEY_FILE=none to use switches without "
    "a key";

// Whether the switch answers for the job that it was asked for. What it gets wrong here would make
// the ranks send where no sum comes from.
Status check_grant(const JobGrant& grant, const JobRequest& request) {
  if (grant.id < 1 || grant.id > kMaxJobId) {
    return Error(fmt::format("answers for the job {}; 1 to {} are allowed", grant.id, kMaxJobId));
  }
  if (request.id != 0 && grant.id != request.id) {
    return Error(
        fmt::format("answers for the job {}; it was asked for the job {}", grant.id, request.id));
  }
  // The keys are secrets.
  if (!request.key.empty() && grant.key != request.key) {
    return Error(fmt::format("answers with another key than that of the job {}", grant.id));
  }
  if (grant.data.empty()) return Error("answers without a data address");
  for (const std::string& data : grant.data) {
    const Result<SocketAddress> address = SocketAddress::numeric(data);
    if (!address.ok() || address->port() == 0 || address->wildcard()) {
      return Error(fmt::format(
          "data: '{}'; an IP address of one host with a port above 0 is allowed", data));
    }
    for (const auto* members : {&request.workers, &request.servers}) {
      if (std::ranges::find(*members, data) == members->end()) continue;
      return Error(fmt::format("data: '{}' is a member of the job, not the switch", data));
    }
  }
  return ok_status();
}

}  // namespace

Result<SwitchClient> SwitchClient::connect(const std::string& address, const SwitchSecrets& secrets,
                                           Time until, bool listens) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  std::string name = fmt::format("the switch at {}", address);
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until, nullptr, listens));
  prepare_stream(fd.get());
  std::unique_ptr<wire::BytesSeal> seal;
  if (secrets.key) {
    const wire::JobKey key = derived_key(*secrets.key, KeyPurpose::kSwitchControl);
    THALWEG_TRY(seal, greet_server(fd.get(), key, name, kKeylessSwitch, until));
  }
  return SwitchClient(ControlConnection(std::move(fd), std::move(name), std::move(seal)),
                      secrets.token);
}

Result<JobGrant> SwitchClient::create(const JobRequest& request, Time until) {
  THALWEG_TRY_STATUS(send_create(request, until));
  return created(request, until);
}

Status SwitchClient::send_create(const JobRequest& request, Time until) {
  json fields = to_json(request);
  fields["op"] = "create";
  if (!token_.empty()) fields["token"] = token_;
  return connection_.send_request(fields, until);
}

Result<JobGrant> SwitchClient::created(const JobRequest& request, Time until) {
  THALWEG_TRY(const json answer, connection_.answer(until));
  Result<JobGrant> grant = job_grant_from(answer);
  if (!grant.ok()) return grant.error().within(connection_.name());
  if (const Status fits = check_grant(*grant, request); !fits.ok()) {
    return fits.error().within(connection_.name());
  }
  return grant;
}

Result<json> SwitchClient::ask(json request, Time until) {
  if (!token_.empty()) request["token"] = token_;
  return connection_.ask(request, until);
}

}  // namespace thalweg::net
