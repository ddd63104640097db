// Collectives over DLCP: the communicator's endpoint, and how operations are prepared.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/group/api/communicator_core.h"
#include "net/io/system.h"

namespace thalweg {

// Only sets the options: the endpoint is made when an operation first needs it.
Status Communicator::Core::prepare_dlcp(const std::vector<net::SocketAddress>& addresses,
                                        const std::string& prefix) {
  net::DlcpPeersOptions dlcp;
  const net::Environment& environment = job_->environment;
  dlcp.rank = rank_;
  dlcp.addresses = addresses;
  dlcp.endpoint.job_token = environment.token;
  dlcp.endpoint.checksum = environment.checksum;
  dlcp.endpoint.packet_payload = dlcp_payload();
  dlcp.endpoint.paths = static_cast<std::uint32_t>(environment.dlcp_paths);
  dlcp.endpoint.line_rate_gbps = options_.dlcp_line_rate_gbps;
  if (!environment.key_file.empty()) {
    THALWEG_TRY(dlcp.endpoint.job_key, read_job_key(environment.key_file));
  }
  dlcp.publish = [job = job_, prefix, rank = rank_](const std::string& address, Time by) -> Status {
    return job->set(fmt::format("{}dlcp/{}", prefix, rank), address, by);
  };
  dlcp.find = [job = job_, prefix](int rank, Time by) {
    return job->get(fmt::format("{}dlcp/{}", prefix, rank), by);
  };
  // Over DLCP ranks may wait for each other before there are streams that could say why.
  dlcp.broken = [engine = std::weak_ptr(engine_), board = board_]() -> std::optional<Error> {
    const auto alive = engine.lock();
    if (!alive) return net::has_left();
    std::optional<Error> broken = alive->broken();
    return broken || !board ? broken : board->failure();
  };
  dlcp_ = std::make_unique<net::DlcpPeers>(std::move(dlcp));
  return ok_status();
}

std::uint32_t Communicator::Core::dlcp_payload() const {
  const std::optional<int> given = job_->environment.dlcp_payload;
  return given ? static_cast<std::uint32_t>(*given) : CommunicatorOptions::kUsualDlcpPayload;
}

Result<std::shared_ptr<net::PlannedOperation>> Communicator::Core::make_dlcp_operation(
    const Call& call, const CallOptions& options, const exec::RankPlan& plan) {
  std::vector<int> ranks;
  for (const Rank peer : plan.peers()) ranks.push_back(peer.value());
  Result<std::vector<net::DlcpWays>> all =
      dlcp_->connect(ranks, net::monotonic_now() + to_duration(options.deadline));
  if (!all.ok()) {
    // A rank is gone or does not come. The others learn of it at once.
    if (all.error().rank()) engine_->break_with(all.error());
    return all.error();
  }
  const std::size_t payload = dlcp_payload();
  net::DlcpOperation::Options dlcp{
      .reduce_bound = options.loss_bound,
      .copy_bound = options.result_loss_bound.value_or(options.loss_bound / 2),
      .layout = {static_cast<std::int64_t>(payload / size_of(call.type)), options.loss_bound > 0},
      .queue = options.dlcp_queue};
  if (dlcp.layout.counted && dlcp.layout.segment_elements < 2) {
    return Error(
        fmt::format("{}: packets take {} bytes of a tensor (dlcp_payload); with a loss "
                    "bound, {} needs at least {}: a count and an element",
                    call.name, payload, name_of(call.type), 2 * size_of(call.type)));
  }
  for (const net::DlcpWays& ways : *all) {
    for (const Peer& peer : ways) {
      if (peer.packet_payload() == payload) continue;
      dlcp.layout.segment_elements = net::DlcpOperation::kWholeChunks;
      if (options.loss_bound == 0) continue;
      return Error(fmt::format("{}: packets to {} take {} bytes of a tensor; dlcp_payload is {}",
                               call.name, peer.name(), peer.packet_payload(), payload));
    }
  }
  return std::shared_ptr<net::PlannedOperation>(
      std::make_shared<net::DlcpOperation>(dlcp, *std::move(all)));
}

}  // namespace thalweg
