#include "net/dlcp/transfer_state.h"

#include <fmt/core.h>

#include <algorithm>
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
  on_arrival = nullptr;  // it may own what owns this transfer
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
  const std::int64_t each = segment_elements();
  report.missing.reserve(outcome.missing.size());
  for (const Bitmap::Run& run : outcome.missing) {
    report.missing.push_back({static_cast<std::int64_t>(run.begin) * each,
                              std::min(static_cast<std::int64_t>(run.end) * each, spec.elements)});
  }
  finish(std::move(report));
}

void Transfer::State::note_arrival(Bytes offset, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(size_of(spec.type));
  const std::int64_t begin = offset.count() / size;
  const std::int64_t end = begin + static_cast<std::int64_t>(bytes) / size;
  if (!news.empty() && news.back().end == begin) {
    news.back().end = end;
  } else {
    news.push_back({begin, end});
  }
}

void Transfer::State::tell_arrivals() {
  if (on_arrival) on_arrival(news);
  news.clear();
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

Status Transfer::offer(ElementRange elements) const {
  THALWEG_TRY_STATUS(state_->home.check("the transfer"));
  const proto::TransferSpec& spec = state_->spec;
  if (!spec.gradual) return Error("offer: the transfer was not started as a gradual one");
  if (elements.begin < 0 || elements.begin > elements.end || elements.end > spec.elements) {
    return Error(fmt::format("offer: the elements {} to {} of a tensor of {}", elements.begin,
                             elements.end, spec.elements));
  }
  // Whole segments only. The last one of the tensor may be short.
  const std::int64_t each = std::max<std::int64_t>(state_->segment_elements(), 1);
  const std::int64_t end =
      elements.end == spec.elements ? (elements.end + each - 1) / each : elements.end / each;
  const std::int64_t begin = std::min((elements.begin + each - 1) / each, end);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->result) return ok_status();
    state_->offers.push_back({static_cast<std::size_t>(begin), static_cast<std::size_t>(end)});
    if (state_->offers.size() > 1) return ok_status();  // the endpoint's thread will look
  }
  state_->loop->post([state = state_] {
    if (const auto peer = state->peer.lock()) peer->offer(*state);
  });
  return ok_status();
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
