// Checks outcomes, and the state of the world when all is over.
#include <fmt/core.h>

#include <algorithm>

#include "proto/dlcp_world.h"

namespace thalweg::proto {

void World::take_outcome(int i, TransferOutcome outcome) {
  const auto plan = static_cast<std::uint32_t>(outcome.cookie);
  const PlannedTransfer& planned = options_.transfers[plan];
  const Track& track = tracks_[plan];
  TransferResult& result = results_[plan];
  const bool sender = i == planned.source;
  if (sender != (outcome.direction == Direction::kSend)) return fail("an outcome at the wrong end");
  if (outcome.key != planned.spec.key) return fail("an outcome of another tensor");
  auto& place = sender ? result.sent : result.received;
  if (place) return fail("a transfer ended twice");
  const Time started = sender ? track.send_started : track.receive_started;
  const TransferSpec& spec = sender ? planned.spec : planned.receiver_spec.value_or(planned.spec);
  if (outcome.started != started || outcome.ended != now_) return fail("an outcome's times");
  if (now_ > started + spec.deadline) return fail("a transfer ended after its deadline");
  if (!outcome.ok()) {
    const std::string& peer = options_.endpoints[static_cast<std::size_t>(i)].peer;
    const bool named =
        outcome.error.find(peer) != std::string::npos &&
        outcome.error.find(fmt::format("transfer {}:", spec.key)) != std::string::npos;
    if (!named) return fail("an error without peer and transfer: " + outcome.error);
  }
  if (!sender) check_received(plan, outcome);
  if (sender && outcome.ok()) {
    if (!result.received || !result.received->ok()) return fail("sent, but not received");
    if (result.received->arrived != outcome.arrived) return fail("the ends count differently");
  }
  place = std::move(outcome);
}

void World::check_received(std::uint32_t plan, const TransferOutcome& outcome) {
  const Track& track = tracks_[plan];
  const PlannedTransfer& planned = options_.transfers[plan];
  if (outcome.segments != track.segments) return fail("the number of segments");
  if (outcome.arrived != track.placed_count) return fail("arrived is not what was placed");
  std::vector<bool> placed(track.placed.size(), true);
  for (const Bitmap::Run& run : outcome.missing) {
    if (run.empty()) return fail("an empty run is missing");
    for (std::size_t i = run.begin; i < run.end; ++i) placed[i] = false;
  }
  if (placed != track.placed) return fail("the missing runs are not what was not placed");
  if (outcome.ok()) {
    // missing <= p·n in whole numbers.
    const std::int64_t missing = track.segments - track.placed_count;
    const LossBound bound = planned.receiver_spec.value_or(planned.spec).bound;
    const std::int64_t allowed_ppb = std::int64_t{bound.ppb()} * track.segments;
    if (missing * 1'000'000'000 > allowed_ppb) return fail("the bound was not kept");
  }
  check_bytes(plan);
}

void World::check_bytes(std::uint32_t plan) {
  if (!options_.with_bytes) return;
  const Track& track = tracks_[plan];
  const PlannedTransfer& planned = options_.transfers[plan];
  const TransferSpec spec = planned.receiver_spec.value_or(planned.spec);
  const auto element = static_cast<std::int64_t>(size_of(spec.type));
  const auto segment = static_cast<std::size_t>(spec.payload.count() / element * element);
  for (std::size_t i = 0; i < track.target.size(); ++i) {
    const bool inside = i >= kGuard && i < kGuard + track.source.size();
    const bool written = inside && track.placed[(i - kGuard) / segment];
    const std::byte expected = written ? track.source[i - kGuard] : std::byte{0xa5};
    if (track.target[i] != expected) return fail(fmt::format("byte {} of the memory", i));
  }
}

void World::check_end() {
  for (std::uint32_t plan = 0; plan < tracks_.size(); ++plan) {
    const Track& track = tracks_[plan];
    const TransferResult& result = results_[plan];
    if (track.send_handle && !result.sent) fail("a sender did not end");
    if (track.receive_handle && !result.received) fail("a receiver did not end");
    if (track.receive_handle) check_bytes(plan);
  }
  for (const End& end : ends_) {
    if (end.endpoint->transfers() != 0 || !end.endpoint->idle()) fail("state is left behind");
    if (end.endpoint->next_timeout()) fail("a timer is left behind");
  }
}

}  // namespace thalweg::proto
