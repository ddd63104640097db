// Allreduces with a straggler bound: which calls may have one, and how they are prepared.
#include <fmt/core.h>

#include <utility>

#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"

namespace thalweg {
namespace {

constexpr int kLongestStragglerWindow = 10'000;

}  // namespace

Status Communicator::Core::check_straggler(TensorSpan tensor, const CallOptions& options) const {
  const double bound = options.straggler_bound;
  if (!(bound >= 0 && bound < 1)) {
    return Error(fmt::format("straggler_bound: {}; from 0 to below 1 is allowed", bound));
  }
  if (options.straggler_window < 1 || options.straggler_window > kLongestStragglerWindow) {
    return Error(fmt::format("straggler_window: {}; from 1 to {} are allowed",
                             options.straggler_window, kLongestStragglerWindow));
  }
  if (bound == 0) return ok_status();
  const bool averages = options.op == ReduceOp::kSum || options.op == ReduceOp::kMean;
  if (!averages || !is_floating(tensor.type)) {
    return Error(
        fmt::format("straggler_bound: {} on an allreduce of {} by {}; only floats by sum or mean "
                    "may leave anything out",
                    bound, name_of(tensor.type), name_of(options.op)));
  }
  if (options.residual == nullptr) {
    return Error(
        fmt::format("straggler_bound: {} without a residual; what is left out needs one", bound));
  }
  if (options.loss_bound != 0) {
    return Error(fmt::format("straggler_bound: {} with a loss_bound of {}; a call has one of them",
                             bound, options.loss_bound));
  }
  if (options.transport && *options.transport != Transport::kTcp) {
    return Error(fmt::format("straggler_bound: {} needs the transport tcp, not {}", bound,
                             name_of(*options.transport)));
  }
  if (!options.scheme.empty()) {
    return Error(
        fmt::format("straggler_bound: {} with the scheme {}; such a call has a way of its "
                    "own",
                    bound, options.scheme));
  }
  if (size_ > proto::kStragglerMostRanks) {
    return Error(fmt::format("straggler_bound: {} among {} ranks; at most {} are allowed", bound,
                             size_, proto::kStragglerMostRanks));
  }
  return ok_status();
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::start_straggler(
    TensorSpan tensor, const CallOptions& options) {
  THALWEG_TRY_STATUS(at_home());
  const std::string text = fmt::format("allreduce of {} {}, {}, straggler bound {} of {} calls",
                                       tensor.elements, name_of(tensor.type), name_of(options.op),
                                       options.straggler_bound, options.straggler_window);
  std::shared_ptr<net::StragglerEngine> engine;
  {
    const std::lock_guard lock(straggler_mutex_);
    if (!straggler_) {
      net::StragglerEngineOptions made;
      made.rank = rank_;
      made.size = size_;
      made.mailbox = [messages = messages_] { return messages->get(); };
      made.broken = messages_->options.broken;
      made.abandon = [weak = std::weak_ptr(engine_)](const Error& why) {
        if (const auto alive = weak.lock()) alive->abandon(why);
      };
      straggler_ = std::make_shared<net::StragglerEngine>(std::move(made));
    }
    engine = straggler_;
  }
  auto op = std::make_shared<Operation::State>();
  op->host = engine;
  op->text = text;
  op->type = tensor.type;
  op->tensor = static_cast<std::byte*>(tensor.data);
  op->elements = tensor.elements;
  op->op = options.op;
  // One byte goes around so that the ranks' calls are compared. Nobody uses its value.
  CallOptions comparison_options = options;
  op->on_over = std::exchange(comparison_options.on_over, nullptr);
  comparison_options.op = ReduceOp::kMax;
  comparison_options.transport = Transport::kTcp;
  comparison_options.residual = nullptr;
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Operation::State> comparison,
              prepare({.collective = plan::Collective::kAllreduce,
                       .name = "comparison",
                       .elements = 1,
                       .type = DType::kInt8,
                       .reduces = true},
                      comparison_options, plan));
  comparison->text = text;
  comparison->signature = signature_of(text);
  comparison->scratch.resize(1);
  net::lay_over(*comparison, plan.get(), comparison->scratch.data());
  op->limit = comparison->limit;
  watch(*op, {.name = "allreduce",
              .elements = tensor.elements,
              .transport = "tcp",
              .number = timeline_ ? calls_++ : 0});
  engine->start({.op = op,
                 .comparison = comparison,
                 .residual = static_cast<std::byte*>(options.residual),
                 .bound = options.straggler_bound,
                 .window = options.straggler_window},
                [&] { engine_->start(comparison); });
  return op;
}

StragglerReport Communicator::Core::straggler_report() {
  const std::lock_guard lock(straggler_mutex_);
  if (!straggler_) return {};
  const proto::StragglerCounts counts = straggler_->counts();
  return {.calls = counts.calls,
          .exact_calls = counts.exact,
          .left_out = counts.contributions,
          .deadline_ms = counts.deadline.ms()};
}

}  // namespace thalweg
