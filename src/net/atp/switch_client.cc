#include "net/atp/switch_client.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "net/io/address.h"
#include "net/io/tcp.h"

namespace thalweg::net {

using nlohmann::json;

Result<SwitchClient> SwitchClient::connect(const std::string& address, const std::string& token,
                                           Time until) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  std::string name = fmt::format("the switch at {}", address);
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until));
  prepare_stream(fd.get());
  return SwitchClient(ControlConnection(std::move(fd), std::move(name)), token);
}

Result<JobGrant> SwitchClient::create(const JobRequest& request, Time until) {
  json fields = to_json(request);
  fields["op"] = "create";
  THALWEG_TRY(const json answer, ask(std::move(fields), until));
  Result<JobGrant> grant = job_grant_from(answer);
  if (!grant.ok()) return grant.error().within(connection_.name());
  return grant;
}

Result<json> SwitchClient::ask(json request, Time until) {
  if (!token_.empty()) request["token"] = token_;
  return connection_.ask(request, until);
}

}  // namespace thalweg::net
