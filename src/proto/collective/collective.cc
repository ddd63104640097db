#include "proto/collective/collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace thalweg::proto {
namespace {

// How long to wait for the last frame of a peer that something else has lost.
constexpr Duration kLastFrame = Duration::milliseconds(1000);

}  // namespace

void Collective::start(CollectiveCall& call) {
  CHECK(!broken_ && numbers_are_left());
  call.number = ++started_;
  Past& past = past_[call.number % kPast];
  past.number = call.number;
  // An equal signature means that the same text is there already; it is not copied again.
  if (std::exchange(past.signature, call.signature) != call.signature) past.text = call.text;
  running_.push_back(&call);
  if (running_.size() == 1) return;
  // The peers may be busy with older operations, and would not send this one's data before they
  // know that it has started here.
  for (const Rank peer : call.peers()) {
    if (at(peer).connected) say(peer, StartedFrame{});
  }
}

void Collective::fail_without_numbers() {
  if (numbers_are_left()) return;
  fail({ErrorCode::kNoResource,
        fmt::format("all numbers of operations up to {} are used: make another communicator",
                    started_)});
}

void Collective::finish(CollectiveCall& call) {
  const auto place = std::ranges::find(running_, &call);
  CHECK(place != running_.end());
  running_.erase(place);
  for (const Rank peer : call.peers()) {
    Peer& state = at(peer);
    std::erase_if(state.ready, [&](const Ready& r) { return r.call == &call; });
    if (!state.answers.empty()) {
      std::erase_if(state.answers,
                    [&](const Answered& a) { return a.frame.operation == call.number; });
    }
  }
  over_.push_back({&call, ok_status()});
}

bool Collective::poll_over(CollectiveCall*& call, Status& status) {
  if (over_.empty()) return false;
  call = over_.front().call;
  status = std::move(over_.front().status);
  over_.erase(over_.begin());
  return true;
}

bool Collective::poll_control(Rank& peer, ControlFrame& frame) {
  if (control_.empty()) return false;
  peer = control_.front().to;
  frame = std::move(control_.front().frame);
  control_.pop_front();
  return true;
}

void Collective::on_connected(Rank peer) {
  at(peer).connected = true;
  if (broken_) say(peer, abort_frame(*broken_, rank_));
}

void Collective::on_closed(Rank peer, const std::string& why) {
  Peer& state = at(peer);
  if (!std::exchange(state.connected, false)) return;
  state.ready.clear();
  state.stalled_operation = 0;
  std::erase_if(control_, [&](const Addressed& a) { return a.to == peer; });
  if (!state.left) {
    fail({ErrorCode::kPeerLost, fmt::format("rank {} is lost: {}", peer.value(), why),
          peer.value()});
    return;
  }
  const auto needs = [&](const CollectiveCall* call) {
    return call->needs(peer) || (call->lost && call->lost->rank() == peer.value());
  };
  if (std::ranges::any_of(running_, needs)) {
    fail({ErrorCode::kPeerLost, fmt::format("rank {} has left", peer.value()), peer.value()});
  }
}

Collective::Called Collective::called_as(std::uint32_t number) const {
  const auto place = std::ranges::lower_bound(running_, number, {}, &CollectiveCall::number);
  if (place != running_.end() && (*place)->number == number) {
    return {true, (*place)->signature, &(*place)->text, *place};
  }
  const Past& past = past_[number % kPast];
  return {past.number == number && number > 0, past.signature, &past.text, nullptr};
}

DataVerdict Collective::on_data(Rank peer, const DataFrame& frame, CollectiveCall*& call) {
  Peer& state = at(peer);
  state.started = std::max(state.started, frame.started);
  const bool drops = broken_ || state.drops;
  if (!drops && frame.operation > started_) return DataVerdict::kStall;
  state.stalled_operation = 0;
  if (drops) return DataVerdict::kDrop;
  const auto place =
      std::ranges::lower_bound(running_, frame.operation, {}, &CollectiveCall::number);
  const bool runs = place != running_.end() && (*place)->number == frame.operation;
  const Called called = runs ? Called{true, (*place)->signature, &(*place)->text, *place}
                             : called_as(frame.operation);
  if (called.known && called.signature != frame.signature) {
    // The question shows the peer both calls, and it then tells all ranks.
    state.drops = true;
    say(peer, AskFrame{frame.operation, called.signature, *called.text});
    return DataVerdict::kDrop;
  }
  if (!runs || !(*place)->takes(peer, frame.arrival, frame.length)) return DataVerdict::kNonsense;
  call = *place;
  return DataVerdict::kTake;
}

std::string Collective::on_control(Rank peer, std::uint32_t started, const ControlFrame& frame) {
  Peer& state = at(peer);
  state.started = std::max(state.started, started);
  state.silent = false;
  if (const auto* ask = std::get_if<AskFrame>(&frame)) answer(peer, *ask);
  if (const auto* reply = std::get_if<AnswerFrame>(&frame)) take_answer(peer, *reply);
  if (const auto* abort = std::get_if<AbortFrame>(&frame)) fail(error_of(*abort));
  if (!std::holds_alternative<LeaveFrame>(frame)) return "";
  state.left = true;
  return "it has left";
}

void Collective::add_ready(CollectiveCall& call, std::uint32_t send, Rank target) {
  if (broken_) return;
  std::vector<Ready>& ready = at(target).ready;
  const auto same = [&](const Ready& r) { return r.call == &call && r.send == send; };
  if (std::ranges::none_of(ready, same)) ready.push_back({&call, send});
}

bool Collective::may_send(const CollectiveCall& call, Rank peer) const {
  if (call.number <= at(peer).started) return true;
  return std::ranges::none_of(running_, [&](const CollectiveCall* older) {
    return older->number < call.number && older->has_data_for(peer);
  });
}

void Collective::fail(const Error& why) {
  if (broken_) return;
  broken_ = why;
  end_all(abort_frame(why, rank_));
}

void Collective::on_lost(CollectiveCall& call, Rank peer, const Error& error, Time now) {
  const bool gone = error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kPeerLost;
  std::optional<int> blamed = peer.value();
  if (error.code() == ErrorCode::kTimeout && culprit_of(call)) blamed = blamed_for(call);
  if (error.code() == ErrorCode::kMismatch) blamed.reset();  // it is no single rank's fault
  const Error why(gone ? ErrorCode::kPeerLost : error.code(), error.message(), blamed);
  // A rank that comes late reads first what the others said.
  if (error.code() == ErrorCode::kTimeout && (call.postponed || postpones(call, now))) {
    if (!call.lost) call.lost = why;
    return;
  }
  if (!gone || !at(peer).connected) {
    fail(why);
  } else if (!call.lost) {
    call.lost = why;
    call.deadline = std::min(call.deadline, now + kLastFrame);
  }
}

void Collective::leave() {
  if (broken_) return;
  broken_ = has_left();
  end_all(LeaveFrame{});
}

void Collective::end_all(const ControlFrame& last) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].ready.clear();
    peers_[i].answers.clear();
    peers_[i].stalled_operation = 0;
    if (peers_[i].connected) say(Rank(static_cast<std::int32_t>(i)), last);
  }
  for (CollectiveCall* call : std::exchange(running_, {})) {
    // A call whose last bytes came right before the failure has all it needs.
    over_.push_back({call, call->done() ? ok_status() : Status(broken_->within(call->text))});
  }
}

}  // namespace thalweg::proto
