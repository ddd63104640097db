// The state of one end as a string, for searches over all states of a small group.
#include <algorithm>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/encode.h"
#include "proto/collective/collective.h"

namespace thalweg::proto {
namespace {

void encode_answer(std::string& out, const AnswerFrame& answer, int asked) {
  encode(out, asked);
  encode(out, answer.operation);
  encode(out, answer.signature.has_value());
  encode(out, answer.signature.value_or(0));
  encode(out, answer.waits_for);
  encode(out, answer.text);
}

void encode_error(std::string& out, const std::optional<Error>& error) {
  encode(out, error.has_value());
  if (!error) return;
  encode(out, static_cast<int>(error->code()));
  encode(out, error->rank().value_or(-1));
  encode(out, error->message());
}

}  // namespace

void Collective::encode_state(std::string& out) const {
  CHECK(control_.empty() && over_.empty());
  encode(out, started_);
  encode(out, reaching_);
  encode_error(out, broken_);
  // What was called before: a call keeps its place until kPast others have followed.
  for (std::uint32_t back = 0; back < std::min<std::uint32_t>(started_, kPast); ++back) {
    encode(out, past_[(started_ - back) % kPast].signature);
    encode(out, past_[(started_ - back) % kPast].text);
  }
  encode(out, running_.size());
  for (const CollectiveCall* call : running_) {
    encode(out, call->number);
    encode(out, (call->has_times ? 1 : 0) + (call->postponed ? 2 : 0));
    encode(out, call->started);
    encode(out, call->deadline);
    encode(out, call->ask_at);
    encode_error(out, call->lost);
  }
  for (const Peer& peer : peers_) {
    encode(out, (peer.connected ? 1 : 0) + (peer.left ? 2 : 0) + (peer.drops ? 4 : 0) +
                    (peer.silent ? 8 : 0));
    encode(out, peer.started);
    encode(out, peer.stalled_operation);
    if (peer.stalled_operation != 0) encode(out, peer.stalled_at);
    // next_data() and answer_of() find the same in any order.
    std::vector<std::tuple<std::uint32_t, std::uint32_t>> ready;
    for (const Ready& r : peer.ready) ready.emplace_back(r.call->number, r.send);
    std::ranges::sort(ready);
    encode(out, ready.size());
    for (const auto& [number, send] : ready) {
      encode(out, number);
      encode(out, send);
    }
    std::vector<Answered> answers = peer.answers;
    std::ranges::sort(answers, {}, [](const Answered& a) { return a.frame.operation; });
    encode(out, answers.size());
    for (const Answered& answer : answers) encode_answer(out, answer.frame, answer.asked);
    encode(out, peer.not_called.has_value());
    if (peer.not_called) encode_answer(out, peer.not_called->frame, peer.not_called->asked);
  }
}

}  // namespace thalweg::proto
