#include "net/dlcp/transfer_state.h"

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "net/dlcp/dlcp_peer.h"
#include "net/io/event_loop.h"

namespace thalweg {

void Transfer::State::finish(Result<TransferReport> outcome) {
  std::function<void(const Result<TransferReport>&)> callback;
  {
    const std::lock_guard lock(mutex);
    CHECK(!result);
    result = std::move(outcome);
    callback = std::exchange(then, nullptr);
  }
  over.notify_all();
  if (callback) callback(*result);
}

void Transfer::State::finish(const proto::TransferOutcome& outcome) {
  if (!outcome.ok()) {
    finish(Error(outcome.code, outcome.error));
    return;
  }
  TransferReport report;
  report.fraction = outcome.fraction();
  report.packets = outcome.segments;
  report.bytes = spec.elements * static_cast<std::int64_t>(size_of(spec.type));
  report.retransmissions = outcome.retransmissions;
  report.time = std::chrono::nanoseconds((outcome.ended - outcome.started).ps() / 1000);
  const std::int64_t each = segment_size.count() / static_cast<std::int64_t>(size_of(spec.type));
  report.missing.reserve(outcome.missing.size());
  for (const Bitmap::Run& run : outcome.missing) {
    report.missing.push_back({static_cast<std::int64_t>(run.begin) * each,
                              std::min(static_cast<std::int64_t>(run.end) * each, spec.elements)});
  }
  finish(std::move(report));
}

Result<TransferReport> Transfer::wait() const {
  THALWEG_TRY_STATUS(state_->home.check("the transfer"));
  std::unique_lock lock(state_->mutex);
  state_->over.wait(lock, [&] { return state_->result.has_value(); });
  return *state_->result;
}

Result<TransferReport> Transfer::wait(std::chrono::nanoseconds limit) const {
  THALWEG_TRY_STATUS(state_->home.check("the transfer"));
  std::unique_lock lock(state_->mutex);
  if (state_->over.wait_for(lock, limit, [&] { return state_->result.has_value(); })) {
    return *state_->result;
  }
  return Error(ErrorCode::kTimeout,
               fmt::format("transfer {} was not over within {}: it goes on", state_->spec.key,
                           to_string(Duration::nanoseconds(limit.count()))));
}

bool Transfer::done() const {
  if (!state_->home.here()) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->result.has_value();
}

void Transfer::cancel() const {
  if (!state_->home.here()) return;
  // The posted work keeps the state alive. If the peer is gone, it has ended the transfer already.
  state_->loop->post([state = state_] {
    if (const auto peer = state->peer.lock()) peer->cancel(*state);
  });
}

void Transfer::on_done(std::function<void(const Result<TransferReport>&)> then) const {
  if (const Status elsewhere = state_->home.check("the transfer"); !elsewhere.ok()) {
    then(elsewhere.error());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->result) {
      state_->then = std::move(then);
      return;
    }
  }
  then(*state_->result);
}

}  // namespace thalweg
