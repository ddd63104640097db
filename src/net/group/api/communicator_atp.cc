// Allreduces over ATP: which calls go over it, and how they are prepared.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"
#include "net/io/system.h"
#include "tensor/fixed_point.h"
#include "tensor/reduce.h"

namespace thalweg {

Status Communicator::Core::prepare_atp(const net::SocketAddress& address, const std::string& prefix,
                                       Time until) {
  const bool chosen = options_.transport == Transport::kAuto;
  if ((options_.transport != Transport::kAtp && !chosen) || size_ == 1) return ok_status();
  if (chosen && static_cast<std::size_t>(size_) > net::kMaxJobWorkers) return ok_status();
  net::AtpEngineOptions atp;
  atp.rank = rank_;
  atp.size = size_;
  // The random number tells process groups of one job apart that have the same name and token. Only
  // rank 0's name reaches the switch.
  atp.name = fmt::format("{}-{:x}", members_.group, net::random_number() & 0xffff'ffff);
  if (atp.name.size() > net::kMaxJobName) atp.name.clear();
  atp.local = address;
  const net::Environment& environment = job_->environment;
  atp.switches = options_.atp_switch.empty() ? environment.switches : options_.atp_switch;
  if (rank_ == 0 && !atp.switches.empty()) {  // it alone talks to switches
    THALWEG_TRY(atp.switch_secrets, net::switch_secrets_from(net::process_environment()));
  }
  atp.job_key = job_->job_key;
  if (!options_.topology.empty()) {
    atp.topology = options_.topology;
    atp.host = std::to_string(rank_);
  } else {
    const int rank_of_job = members_.ranks[static_cast<std::size_t>(rank_)];
    atp.topology = environment.topology;
    atp.host = environment.host.empty() ? fmt::format("{}/{}", rank_of_job, environment.size)
                                        : environment.host;
  }
  atp.only_with_switch = chosen;
  atp.servers = options_.atp_servers;
  atp.elements = options_.atp_elements;
  atp.checks = environment.checksum;
  const int most_servers = std::min(size_, static_cast<int>(net::kMaxJobServers));
  if (atp.servers < 0 || atp.servers > most_servers) {
    return Error(
        fmt::format("atp_servers: {}; from 0 to {} are allowed", atp.servers, most_servers));
  }
  atp.publish = [job = job_, prefix](const std::string& key, const std::string& value, Time by) {
    return job->set(fmt::format("{}atp/{}", prefix, key), value, by);
  };
  atp.find = [job = job_, prefix](const std::string& key, Time by) {
    return job->get(fmt::format("{}atp/{}", prefix, key), by);
  };
  atp.broken = [engine = std::weak_ptr(engine_)] {
    const auto alive = engine.lock();
    return alive ? alive->broken() : std::optional<Error>(net::has_left());
  };
  atp.call_roll = [engine = std::weak_ptr(engine_)] {
    if (const auto alive = engine.lock()) alive->call_roll();
  };
  atp.fail_missing = [engine = std::weak_ptr(engine_)](Duration limit) {
    if (const auto alive = engine.lock()) alive->fail_missing(limit);
  };
  THALWEG_TRY(atp_, net::AtpEngine::make(std::move(atp), until));
  return ok_status();
}

Result<bool> Communicator::Core::goes_by_atp(TensorSpan tensor, const CallOptions& options) const {
  THALWEG_TRY_STATUS(at_home());
  const Transport wanted = options.transport.value_or(options_.transport);
  if (wanted != Transport::kAtp && wanted != Transport::kAuto) return false;
  const bool fits = (tensor.type == DType::kInt32 || tensor::has_fixed_point(tensor.type)) &&
                    (options.op == ReduceOp::kSum || options.op == ReduceOp::kMean);
  // A call that names ATP itself must not silently use another transport.
  if (options.transport == Transport::kAtp && !fits) {
    return Error(fmt::format(
        "allreduce of {} by {} over atp; int32, float32, float16 and bfloat16 by sum or "
        "mean are allowed",
        name_of(tensor.type), name_of(options.op)));
  }
  if (options.transport == Transport::kAtp && !atp_ && size_ > 1) {
    return Error("transport: atp is for communicators that were created with it and have a switch");
  }
  if (!fits || !atp_ || tensor.elements == 0 || options.loss_bound != 0) return false;
  if (wanted == Transport::kAtp) return true;
  if (options.residual != nullptr) return false;
  if (!options.scheme.empty() || !options_.scheme.empty()) return false;
  return plans_->faster_in_network(
      {.elements = tensor.elements,
       .element_bytes = static_cast<int>(size_of(tensor.type)),
       .scheme = {}},
      {.block_elements = atp_->elements(),
       .packet_overhead = Bytes(static_cast<std::int64_t>(wire::kAtpHeaderSize)) +
                          proto::AtpWorkerOptions().frame_overhead,
       .levels = atp_->levels(),
       .agreement = {}});
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::start_atp(
    TensorSpan tensor, const CallOptions& options) {
  const std::string text = fmt::format("allreduce of {} {}, {}, over atp", tensor.elements,
                                       name_of(tensor.type), name_of(options.op));
  auto op = std::make_shared<net::AtpOperation>();
  op->host = atp_;
  op->text = text;
  op->type = tensor.type;
  op->tensor = static_cast<std::byte*>(tensor.data);
  op->elements = tensor.elements;
  op->op = options.op;
  if (options.op == ReduceOp::kMean) {
    op->last_step = [tensor, ranks = size_] {
      tensor::finish_mean(tensor.type, tensor.data, static_cast<std::size_t>(tensor.elements),
                          ranks);
    };
  }
  // One number goes around so that the ranks' calls are compared; the engine says which.
  CallOptions comparison_options = options;
  op->on_over = std::exchange(comparison_options.on_over, nullptr);
  comparison_options.op = ReduceOp::kMax;
  comparison_options.transport = Transport::kTcp;
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<net::PlannedOperation> comparison,
              prepare({.collective = plan::Collective::kAllreduce,
                       .name = "comparison",
                       .elements = 1,
                       .type = DType::kInt32,
                       .reduces = true},
                      comparison_options, plan));
  comparison->text = text;
  comparison->signature = signature_of(text);
  comparison->scratch.resize(sizeof(std::int32_t));
  net::lay_over(*comparison, plan.get(), comparison->scratch.data());
  op->limit = comparison->limit;
  op->stated = comparison->stated;
  watch(*op, {.name = "allreduce",
              .bytes = tensor.elements * static_cast<std::int64_t>(size_of(tensor.type)),
              .transport = "atp",
              .number = timeline_ ? calls_++ : 0});
  const std::lock_guard lock(atp_order_);
  atp_->start(op, comparison, [&] { engine_->start(comparison); });
  return std::shared_ptr<Operation::State>(std::move(op));
}

}  // namespace thalweg
