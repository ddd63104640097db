// What ranks that wait ask each other, and how they find who is to blame.
//
// A rank that has waited for a second asks the ranks of its plan where they are, and again every
// second. Each answers with its call and whom it waits for in the end, so that in a chain of ranks
// that wait for each other the name of the last comes nearer with every question. The rank that
// waits for the last one itself gives up a moment before the others: what it says is what all hear.
#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "net/collective/engine.h"
#include "net/system.h"

namespace thalweg {
namespace {

constexpr Duration kStoreEvery = Duration::milliseconds(1000);

}  // namespace

void Engine::ask_peers(Op& op) {
  op.ask_at = op.ask_at + kAskAfter;
  for (const Rank peer : op.plan->peers()) {
    Connection& connection = *connections_[peer.index()];
    if (!connection.connected()) continue;
    connection.queue({.kind = FrameKind::kAsk,
                      .operation = op.number,
                      .signature = op.signature,
                      .started = started_},
                     op.text);
    touch(connection);
  }
}

void Engine::answer(Connection& connection, const Frame& frame, const std::string& theirs) {
  Frame reply{.kind = FrameKind::kAnswer,
              .operation = frame.operation,
              .started = started_,
              .rank = kNoFrameRank};
  const Op* op = find(frame.operation);
  const Called called = called_as(frame.operation, op);
  std::string text;
  if (frame.operation > started_) {
    text = not_called_text();
  } else if (!called.known) {
    text = "has finished it long ago";
  } else {
    if (called.signature != frame.signature) {
      report_difference(connection, frame.operation, called.text, theirs);
      return;
    }
    reply.signature = called.signature;
    text = called.text;
    if (op != nullptr) reply.rank = culprit_of(*op);
  }
  connection.queue(reply, text);
  touch(connection);
}

void Engine::report_difference(Connection& connection, std::uint32_t number,
                               const std::string& ours, const std::string& theirs) {
  fail(kNoFrameRank,
       fmt::format("the ranks do not call the same: as operation {}, rank {} calls {}, rank {} "
                   "calls {}",
                   number, options_.rank, ours, connection.peer().value(), theirs));
}

std::string Engine::not_called_text() const {
  if (started_ == 0) return "has called nothing yet";
  return fmt::format("has not called it yet (its last call, number {}, was {})", started_,
                     past_[started_ % kPast].text);
}

// A question behind a frame that stalls its stream is not read: it is answered all the same.
void Engine::tell_stalled(Time now) {
  for (Connection* connection : open_) {
    if (!connection->connected() || !connection->stalled()) continue;
    if (now < connection->stalled_at + kAskAfter) continue;
    connection->stalled_at = now;
    connection->queue({.kind = FrameKind::kAnswer,
                       .operation = connection->stalled_operation(),
                       .started = started_,
                       .rank = kNoFrameRank},
                      not_called_text());
    touch(*connection);
  }
}

std::uint32_t Engine::waits_for(const Op& op) const {
  if (!op.runs()) return kNoFrameRank;
  for (std::uint32_t slot = 0; slot < op.plan->arrivals().size(); ++slot) {
    if (op.outstanding(slot)) {
      return static_cast<std::uint32_t>(op.plan->arrivals()[slot].source.value());
    }
  }
  for (std::uint32_t send = 0; op.executor && send < op.plan->sends().size(); ++send) {
    if (!op.executor->sent_all(send)) {
      return static_cast<std::uint32_t>(op.plan->sends()[send].target.value());
    }
  }
  return kNoFrameRank;
}

std::uint32_t Engine::culprit_of(const Op& op) const {
  const std::uint32_t rank = waits_for(op);
  if (rank == kNoFrameRank || is_last_in_chain(op)) return rank;
  return connections_[rank]->answer.waits_for;
}

bool Engine::is_last_in_chain(const Op& op) const {
  const std::uint32_t rank = waits_for(op);
  if (rank == kNoFrameRank) return false;
  const Connection::Answer& answer = connections_[rank]->answer;
  return answer.operation != op.number || answer.waits_for == kNoFrameRank;
}

std::string Engine::late_text(const Op& op) const {
  const std::uint32_t rank = waits_for(op);
  const std::string limit = to_human(op.limit);
  if (rank == kNoFrameRank) return fmt::format("not over within {}", limit);
  const Connection& connection = *connections_[rank];
  if (!connection.connected()) {
    return fmt::format("not over within {}: rank {} never connected", limit, rank);
  }
  if (connection.answer.operation != op.number) {
    return fmt::format("not over within {}: rank {} is connected and does not answer: it hangs",
                       limit, rank);
  }
  const std::uint32_t behind = connection.answer.waits_for;
  if (behind != kNoFrameRank) {
    return fmt::format("not over within {}: rank {} waits for rank {}", limit, rank, behind);
  }
  return connection.answer.signature == op.signature
             ? fmt::format(
                   "not over within {}: what rank {} is to send does not come, or what is "
                   "sent to it is not taken",
                   limit, rank)
             : fmt::format("not over within {}: rank {} {}", limit, rank, connection.answer.text);
}

void Engine::consult(Lock& lock) {
  if (!broken_.empty() && !announced_) {
    announced_ = true;
    if (!options_.announce_failure) return;
    const std::string text = broken_;
    lock.unlock();
    options_.announce_failure(text);
    lock.lock();
    return;
  }
  const Time now = monotonic_now();
  if (running_.empty() || !options_.compare_calls || now < consult_at_) return;
  const Op& op = *running_.front();
  if (now < op.started + kAskAfter) return;
  consult_at_ = now + kStoreEvery;
  // It may be over before the answer is there, and then it is its caller's alone.
  const auto call = std::tuple(op.number, op.signature, op.text);
  lock.unlock();
  const auto failure = std::apply(options_.compare_calls, call);
  lock.lock();
  if (!failure || !broken_.empty()) return;
  fail(kNoFrameRank, *failure);
  settle();
}

}  // namespace thalweg
