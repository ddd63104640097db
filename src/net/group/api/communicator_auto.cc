// Transport::kAuto: which allreduces have trials, and of which candidates.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "net/group/api/auto_calls.h"
#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"
#include "net/io/system.h"

namespace thalweg {
namespace {

// Smaller tensors use the usual scheme: the number of its steps decides, and trials would be lost
// among what other processes do to such short times.
constexpr std::int64_t kLeastTried = 16 << 10;
// Above this many bytes, sending the whole tensor in each step is not worth a trial.
constexpr std::int64_t kMostWhole = 1 << 20;
// What the neighbours send each other to see whether DLCP's packets arrive, and how long they wait.
constexpr std::size_t kProbeElements = 16 << 10;
constexpr std::chrono::nanoseconds kProbeLimit = std::chrono::seconds(5);
constexpr std::uint64_t kProbeKey = ~std::uint64_t{0};

}  // namespace

bool Communicator::Core::chooses(TensorSpan tensor, const CallOptions& options) const {
  if (!auto_ || size_ == 1 || tensor.elements == 0) return false;
  if (options.transport.value_or(Transport::kAuto) != Transport::kAuto) return false;
  if (!options.scheme.empty()) return false;
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kMean) return false;
  if (options.residual != nullptr && options.loss_bound == 0) return false;
  const std::int64_t bytes = tensor.elements * static_cast<std::int64_t>(size_of(tensor.type));
  return bytes >= kLeastTried || options.loss_bound != 0;
}

Result<net::AutoTurn> Communicator::Core::choose(TensorSpan tensor, const CallOptions& options) {
  THALWEG_TRY_STATUS(at_home());
  // What is wrong with a call must be found before a candidate is dealt to it, because the other
  // ranks do not count a call that does not start.
  THALWEG_TRY_STATUS(check_times(options));
  if (options.residual != nullptr && options.op != ReduceOp::kMean) {
    return Error("residual: only an allreduce by mean over tcp or dlcp has one");
  }
  net::AutoTurn turn{.options = options};
  turn.options.transport = Transport::kDlcp;  // for the check of the bound
  THALWEG_TRY_STATUS(check_bound({.collective = plan::Collective::kAllreduce,
                                  .name = "allreduce",
                                  .elements = tensor.elements,
                                  .type = tensor.type,
                                  .reduces = true},
                                 turn.options));
  const std::int64_t bytes = tensor.elements * static_cast<std::int64_t>(size_of(tensor.type));
  net::AutoCandidate candidate;
  if (bytes >= kLeastTried) {
    net::AutoTable& table = *auto_;
    if (!table.prepared) prepare_trials(options);
    turn.kind = net::auto_kind_of(options.op, tensor.type, bytes, options.loss_bound > 0);
    THALWEG_TRY(net::AutoCalls* const calls, calls_of(turn.kind, tensor, options));
    ++calls->count;
    calls->bytes += static_cast<double>(bytes);
    table.bytes += static_cast<double>(bytes);
    const std::optional<std::size_t> dealt = deal(*calls, options);
    turn.dealt = dealt.has_value();
    candidate = dealt ? calls->candidates[*dealt] : table.untried(*calls);
    turn.meter = table.meter;
  }
  turn.options.transport = candidate.transport;
  turn.options.scheme = candidate.scheme;
  if (candidate.transport != Transport::kDlcp) {
    turn.options.loss_bound = 0;
    turn.options.result_loss_bound.reset();
  }
  return turn;
}

// The number of the candidate that the call gets; none: the kind has no trials yet. Whether a kind
// has its turn depends only on the calls so far, which are the same on all ranks.
std::optional<std::size_t> Communicator::Core::deal(net::AutoCalls& calls,
                                                    const CallOptions& options) {
  net::AutoTable& table = *auto_;
  for (const net::AutoKind& kind : table.meter->take()) table.calls.at(kind).choice->on_over();
  if (table.may_begin(calls)) {
    // All kinds together have one budget.
    proto::AutoRules rules;
    rules.budget /= ++table.tried;
    calls.choice.emplace(calls.candidates.size(), rules);
    if (calls.candidates.size() > 1) table.trying = &calls;
    if (table.first == nullptr) table.first = &calls;
  }
  if (!calls.choice) return std::nullopt;
  const Duration busy = table.meter->busy();
  if (calls.last) calls.choice->on_time(*calls.last, busy - calls.busy_before);
  exchange_times(calls, options);
  if (table.trying == &calls && calls.choice->decided()) table.trying = nullptr;
  if (table.trying == nullptr && calls.choice->wants_trials()) {
    calls.choice->try_again();
    table.trying = &calls;
  }
  const proto::AutoChoice::Deal deal = calls.choice->deal();
  calls.last = deal.call;
  calls.busy_before = busy;
  return deal.candidate;
}

Result<net::AutoCalls*> Communicator::Core::calls_of(const net::AutoKind& kind, TensorSpan tensor,
                                                     const CallOptions& options) {
  std::map<net::AutoKind, net::AutoCalls>& known = auto_->calls;
  if (const auto found = known.find(kind); found != known.end()) return &found->second;
  THALWEG_TRY(std::vector<net::AutoCandidate> candidates, candidates_of(tensor, options));
  return &known.emplace(kind, net::AutoCalls{.kind = kind, .candidates = std::move(candidates)})
              .first->second;
}

// The first candidate is the one that the planner expects to be the fastest. All ranks find the
// same ones: they depend on the topology, the sizes and on what the ranks have agreed on.
Result<std::vector<net::AutoCandidate>> Communicator::Core::candidates_of(
    TensorSpan tensor, const CallOptions& options) {
  const auto element = static_cast<int>(size_of(tensor.type));
  const std::int64_t bytes = tensor.elements * element;
  const auto request = [&](std::string_view scheme) {
    return net::Plans::Request{
        .elements = tensor.elements, .element_bytes = element, .scheme = scheme};
  };
  THALWEG_TRY(const std::shared_ptr<const net::PreparedPlan> usual, plans_->get(request("")));
  std::vector<net::AutoCandidate> candidates = {{Transport::kTcp, usual->plan.scheme}};
  const auto add = [&](const char* scheme) {
    const auto plan = plans_->get(request(scheme));
    if (!plan.ok()) return;
    const bool known = std::ranges::any_of(candidates, [&](const net::AutoCandidate& candidate) {
      return candidate.transport == Transport::kTcp && candidate.scheme == (*plan)->plan.scheme;
    });
    if (!known) candidates.push_back({Transport::kTcp, (*plan)->plan.scheme});
  };
  // Two ranks run the same plan by a ring and by halving and doubling.
  if (size_ > 2 || usual->plan.scheme != "ring") add("halving-doubling");
  if (size_ > 2) add("ring");
  if (bytes <= kMostWhole) add("butterfly");
  if (plans_->has_racks()) add("rat");
  if (auto_->over_dlcp) candidates.push_back({Transport::kDlcp, "ring"});
  CallOptions exact = options;
  exact.transport.reset();
  if (options.loss_bound == 0 && options.residual == nullptr) {
    THALWEG_TRY(const bool planned, goes_by_atp(tensor, exact));
    exact.transport = Transport::kAtp;
    const bool possible = atp_ && goes_by_atp(tensor, exact).ok();
    if (possible)
      candidates.insert(planned ? candidates.begin() : candidates.end(), {Transport::kAtp, ""});
  }
  if (candidates.size() > proto::kAutoMostCandidates) candidates.resize(proto::kAutoMostCandidates);
  return candidates;
}

// Combines the times of trials, and takes what was combined. If that fails, the communicator is
// broken, and the call that follows says why.
void Communicator::Core::exchange_times(net::AutoCalls& calls, const CallOptions& options) {
  proto::AutoChoice& choice = *calls.choice;
  if (choice.awaits_report() && calls.report) {
    const std::shared_ptr<net::PlannedOperation> op = std::exchange(calls.report, nullptr);
    if (!op->host->wait(*op).ok()) return;
    proto::AutoReport combined = {};
    std::memcpy(combined.data(), op->scratch.data(), sizeof(combined));
    const int before = choice.decisions();
    choice.on_combined(combined);
    if (choice.decisions() > before) announce(calls);
  }
  if (!choice.reports()) return;
  const proto::AutoReport own = choice.report();
  auto op = start_combining(own.data(), own.size(), ReduceOp::kMax, options);
  if (op.ok()) calls.report = *std::move(op);
}

Result<std::shared_ptr<net::PlannedOperation>> Communicator::Core::start_combining(
    const double* values, std::size_t count, ReduceOp op, const CallOptions& options) {
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(std::shared_ptr<net::PlannedOperation> state,
              prepare({.collective = plan::Collective::kAllreduce,
                       .name = "times of trials",
                       .elements = static_cast<std::int64_t>(count),
                       .type = DType::kFloat64,
                       .reduces = true},
                      {.op = op,
                       .priority = std::numeric_limits<int>::min(),
                       .deadline = options.deadline,
                       .patience = options.patience,
                       .transport = Transport::kTcp},
                      plan));
  state->scratch.resize(count * sizeof(double));
  std::memcpy(state->scratch.data(), values, state->scratch.size());
  net::lay_over(*state, plan.get(), state->scratch.data());
  engine_->start(state);
  return state;
}

void Communicator::Core::announce(const net::AutoCalls& calls) {
  const AutoDecision decision = auto_->decision(calls);
  if (metrics_) metrics_->note_choice(decision.kind, decision.chosen);
  if (rank_ != 0) return;
  job_->log.info("{} goes by {} ({})", decision.kind, decision.chosen, decision.why);
}

// Finds out whether DLCP can be tried. A firewall may drop its packets, and a call that waits for
// them would fail.
void Communicator::Core::prepare_trials(const CallOptions& options) {
  net::AutoTable& table = *auto_;
  table.prepared = true;
  if (!agree(uses_network_, options)) return;
  const Status reached = reach_neighbours();
  table.over_dlcp = agree(reached.ok(), options);
  if (!reached.ok()) job_->log.warn("dlcp is not tried: {}", reached.error().message());
}

bool Communicator::Core::agree(bool wants, const CallOptions& options) {
  const double own = wants ? 1 : 0;
  const auto op = start_combining(&own, 1, ReduceOp::kMin, options);
  if (!op.ok() || !(*op)->host->wait(**op).ok()) return false;
  double all = 0;
  std::memcpy(&all, (*op)->scratch.data(), sizeof(all));
  return all == 1;
}

Status Communicator::Core::reach_neighbours() {
  const int next = (rank_ + 1) % size_;
  const int previous = (rank_ + size_ - 1) % size_;
  const std::vector<int> ranks =
      next == previous ? std::vector{next}
                       : std::vector{std::min(next, previous), std::max(next, previous)};
  const Time until = net::monotonic_now() + Duration::nanoseconds(kProbeLimit.count());
  THALWEG_TRY(const std::vector<net::DlcpWays> ways, dlcp_->connect(ranks, until));
  const net::DlcpWays& to = next == ranks.front() ? ways.front() : ways.back();
  const net::DlcpWays& from = previous == ranks.front() ? ways.front() : ways.back();
  const std::vector<float> sent(kProbeElements, 1);
  std::vector<std::vector<float>> received(from.size(), std::vector<float>(kProbeElements));
  std::vector<Result<Transfer>> transfers;
  for (std::size_t w = 0; w < from.size(); ++w) {
    transfers.push_back(
        from[w].recv(TensorSpan::of(received[w]), {.key = kProbeKey, .deadline = kProbeLimit}));
  }
  for (const Peer& peer : to) {
    transfers.push_back(
        peer.send(TensorView::of(sent), {.key = kProbeKey, .deadline = kProbeLimit}));
  }
  // All have to be over before the memory goes.
  Status status = ok_status();
  for (const Result<Transfer>& transfer : transfers) {
    const Result<TransferReport> report = transfer.ok() ? transfer->wait() : transfer.error();
    if (!report.ok()) status = report.error();
  }
  return status;
}

std::vector<AutoDecision> Communicator::Core::auto_choices() const {
  std::vector<AutoDecision> decisions;
  if (!auto_ || !home_.here()) return decisions;
  const std::lock_guard order(auto_->order);
  for (const auto& [kind, calls] : auto_->calls) decisions.push_back(auto_->decision(calls));
  return decisions;
}

}  // namespace thalweg
