// Allreduces over ATP: which calls take that way, and how they are prepared for it.
#include <fmt/format.h>

#include <utility>

#include "net/collective/communicator_core.h"
#include "net/collective/layout.h"
#include "net/system.h"
#include "tensor/fixed_point.h"
#include "tensor/reduce.h"

namespace thalweg {

Status Communicator::Core::prepare_atp(const SocketAddress& address, const std::string& prefix,
                                       Time until) {
  const bool chosen = options_.transport == Transport::kAuto;
  if ((options_.transport != Transport::kAtp && !chosen) || size_ == 1) return ok_status();
  if (chosen && static_cast<std::size_t>(size_) > kMaxJobWorkers) return ok_status();
  AtpEngineOptions atp;
  atp.rank = rank_;
  atp.size = size_;
  // Process groups of one job may have one name and token. Only rank 0's reaches the switch.
  atp.name = fmt::format("{}-{:x}", members_.group, random_number() & 0xffff'ffff);
  if (atp.name.size() > kMaxJobName) atp.name.clear();
  atp.local = address;
  atp.switch_address =
      options_.atp_switch.empty() ? job_->environment.switch_address : options_.atp_switch;
  atp.switch_token = job_->environment.switch_token;
  atp.only_with_switch = chosen;
  atp.servers = options_.atp_servers;
  atp.elements = options_.atp_elements;
  if (atp.elements < 1 || atp.elements > kAtpMostElements) {
    return Error(
        fmt::format("atp_elements: {}; from 1 to {} are allowed", atp.elements, kAtpMostElements));
  }
  if (atp.servers < 0 || atp.servers > size_) {
    return Error(fmt::format("atp_servers: {}; from 0 to {} are allowed", atp.servers, size_));
  }
  atp.publish = [job = job_, prefix](const std::string& key, const std::string& value, Time by) {
    return job->set(fmt::format("{}atp/{}", prefix, key), value, by);
  };
  atp.find = [job = job_, prefix](const std::string& key, Time by) {
    return job->get(fmt::format("{}atp/{}", prefix, key), by);
  };
  atp.broken = [engine = std::weak_ptr(engine_)] {
    const auto alive = engine.lock();
    return alive ? alive->broken() : "this rank has left";
  };
  THALWEG_TRY(atp_, AtpEngine::make(std::move(atp), until));
  return ok_status();
}

Result<bool> Communicator::Core::goes_by_atp(TensorSpan tensor, const CallOptions& options) const {
  const Transport way = options.transport.value_or(options_.transport);
  if (way != Transport::kAtp && way != Transport::kAuto) return false;
  const bool fits = (tensor.type == DType::kInt32 || has_fixed_point(tensor.type)) &&
                    (options.op == ReduceOp::kSum || options.op == ReduceOp::kMean);
  // A call that says so itself is not sent another way in silence.
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
  if (way == Transport::kAtp) return true;
  if (options.residual != nullptr) return false;
  if (!options.scheme.empty() || !options_.scheme.empty()) return false;
  return plans_->faster_in_network(
      {.elements = tensor.elements,
       .element_bytes = static_cast<int>(size_of(tensor.type)),
       .scheme = {}},
      {.block_elements = atp_->elements(),
       .packet_overhead =
           Bytes(static_cast<std::int64_t>(kAtpHeaderSize)) + AtpWorkerOptions().frame_overhead,
       .servers = atp_->servers(),
       .agreement = {}});
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::start_atp(
    TensorSpan tensor, const CallOptions& options) {
  const std::string text = fmt::format("allreduce of {} {}, {}, over atp", tensor.elements,
                                       name_of(tensor.type), name_of(options.op));
  auto op = std::make_shared<Operation::State>();
  op->host = atp_;
  op->text = text;
  op->type = tensor.type;
  op->tensor = static_cast<std::byte*>(tensor.data);
  op->elements = tensor.elements;
  const auto block = static_cast<std::int64_t>(atp_->elements());
  const bool fixed = has_fixed_point(tensor.type);
  // Integers have no exponents: one stands for all, so that calls are compared.
  const std::int64_t blocks = fixed ? (tensor.elements + block - 1) / block : 1;
  op->scratch.resize(static_cast<std::size_t>(blocks));
  if (fixed) {
    block_exponents(tensor.type, tensor.data, static_cast<std::size_t>(tensor.elements),
                    static_cast<std::size_t>(block),
                    {reinterpret_cast<BlockExponent*>(op->scratch.data()), op->scratch.size()});
  }
  if (options.op == ReduceOp::kMean) {
    op->last_step = [tensor, ranks = size_] {
      finish_mean(tensor.type, tensor.data, static_cast<std::size_t>(tensor.elements), ranks);
    };
  }
  CallOptions agreement_options = options;
  op->on_over = std::exchange(agreement_options.on_over, nullptr);
  agreement_options.op = ReduceOp::kMax;
  agreement_options.transport = Transport::kTcp;
  std::shared_ptr<const PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Operation::State> agreement,
              prepare({.collective = Collective::kAllreduce,
                       .name = "exponents",
                       .elements = blocks,
                       .type = DType::kInt8,
                       .reduces = true},
                      agreement_options, plan));
  agreement->text = text;
  agreement->signature = signature_of(text);
  lay_over(*agreement, plan.get(), op->scratch.data());
  op->limit = agreement->limit;
  if (metrics_) {
    metrics_->watch(*op, "allreduce",
                    tensor.elements * static_cast<std::int64_t>(size_of(tensor.type)));
  }
  const std::lock_guard lock(atp_order_);
  engine_->start(agreement);
  atp_->start(op, agreement);
  return op;
}

}  // namespace thalweg
