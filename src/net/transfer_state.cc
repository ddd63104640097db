#include "net/transfer_state.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "net/event_loop.h"
#include "net/link.h"

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

void Transfer::State::finish(const TransferOutcome& outcome) {
  if (!outcome.ok()) {
    finish(Error(outcome.error));
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
  std::unique_lock lock(state_->mutex);
  state_->over.wait(lock, [&] { return state_->result.has_value(); });
  return *state_->result;
}

Result<TransferReport> Transfer::wait(std::chrono::nanoseconds limit) const {
  std::unique_lock lock(state_->mutex);
  if (state_->over.wait_for(lock, limit, [&] { return state_->result.has_value(); })) {
    return *state_->result;
  }
  return Error(fmt::format("transfer {} was not over within {}: it goes on", state_->spec.key,
                           to_string(Duration::nanoseconds(limit.count()))));
}

bool Transfer::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->result.has_value();
}

void Transfer::cancel() const {
  // The loop keeps the state until it has looked at it; a link that is gone has ended it already.
  state_->loop->post([state = state_] {
    if (const auto link = state->link.lock()) link->cancel(*state);
  });
}

void Transfer::on_done(std::function<void(const Result<TransferReport>&)> then) const {
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
