#include "collective/world.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::proto::collective_test {
namespace {

// Whether the text has the words "rank 3", and not only "rank 31".
bool names(const std::string& text, int rank) {
  const std::string words = fmt::format("rank {}", rank);
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

}  // namespace

World::World(WorldOptions options, std::uint64_t seed, std::function<Duration(int, int)> delay,
             std::function<void(int, int, Time)> on_item)
    : options_(std::move(options)),
      prng_(seed),
      delay_(std::move(delay)),
      on_item_(std::move(on_item)),
      ranks_(static_cast<std::size_t>(options_.ranks)),
      streams_(ranks_.size() * ranks_.size()) {
  options_.in_flight.resize(ranks_.size(), 1);
  for (int r = 0; r < options_.ranks; ++r) {
    at(r).core = std::make_unique<Collective>(Rank(r), options_.ranks);
    at(r).calls_until = options_.calls.size();
  }
}

void World::write(int from, int to, decltype(Item::what) what, Time now) {
  Stream& out = stream(from, to);
  if (at(to).dead || at(to).left || out.closed) return;  // nobody reads it
  if (std::holds_alternative<Data>(what)) ++out.data;
  out.last = std::max(out.last, now + delay_(from, to));
  out.items.push_back({std::move(what), out.last});
  on_item_(from, to, out.last);
}

bool World::may_call(int rank) const {
  const RankState& state = at(rank);
  return lives(rank) && !state.left && !state.core->broken() &&
         state.calls.size() < state.calls_until &&
         state.running < options_.in_flight[static_cast<std::size_t>(rank)];
}

std::optional<Rank> World::lacking(int rank, const CollectiveCall& call) const {
  for (const Rank peer : call.peers()) {
    const int other = peer.value();
    const bool gone = at(other).dead || at(other).left;
    if (stream(other, rank).closed) return peer;
    if (other < rank && !stream(rank, other).writable && gone) return peer;
  }
  return std::nullopt;
}

void World::consult(int rank, Time now) {
  Collective& core = *at(rank).core;
  if (!announced_ || !lives(rank) || core.running().empty()) return;
  if (now < core.running().front()->started + CollectiveCall::kAskAfter) return;
  core.fail(*announced_);
  pump(rank, now);
}

void World::join(int rank, int peer) {
  at(rank).core->on_connected(Rank(peer));
  if (!options_.forgets_order) return;
  static_cast<void>(at(rank).core->on_control(Rank(peer), ~std::uint32_t{0}, StartedFrame{}));
}

void World::connect(int rank, int peer, Time now) {
  Stream& out = stream(rank, peer);
  if (out.writable || peer > rank) return;  // the higher rank connects
  if (at(peer).dead || at(peer).left || stream(peer, rank).closed) return;
  out.writable = true;
  join(rank, peer);
  write(rank, peer, Hello{}, now);
}

void World::call(int rank, Time now) {
  RankState& state = at(rank);
  const std::size_t index = state.calls.size();
  WorldCallSpec spec = options_.calls[index];
  const bool differs = rank == options_.differs && index == options_.differs_at;
  if (differs && options_.differs_by) spec.plan = options_.differs_by;
  auto& call = *state.calls.emplace_back(std::make_unique<WorldCall>(spec, rank, index));
  if (differs && !options_.differs_by) {
    call.text += ", in other words";
    call.signature ^= 2;
  }
  call.limit = options_.limit;
  call.set_times(now);
  const std::optional<Rank> lacked = lacking(rank, call);
  state.core->set_reaching(lacked);
  for (const Rank peer : call.peers()) connect(rank, peer.value(), now);
  if (lacked) {
    if (!state.dial_until) state.dial_until = now + options_.limit;
    if (now < *state.dial_until) {
      state.calls.pop_back();
      return;
    }
    state.core->fail({ErrorCode::kPeerLost,
                      fmt::format("rank {}: cannot be reached", lacked->value()), lacked->value()});
    call.result = *state.core->broken();
    pump(rank, now);
    return;
  }
  state.dial_until.reset();
  call.began = true;
  call.begin();
  ++state.running;
  state.core->start(call);
  progress(rank, call);
  for (int peer = 0; peer < options_.ranks; ++peer) {
    Stream& in = stream(peer, rank);
    if (!std::exchange(in.stalled, false)) continue;
    for (const Item& item : in.items) on_item_(peer, rank, std::max(item.at, now));
  }
  pump(rank, now);
}

void World::progress(int rank, WorldCall& call) {
  std::uint32_t send = 0;
  while (call.executor.poll_ready(send)) {
    at(rank).core->add_ready(call, send, call.plan().sends()[send].target);
  }
}

bool World::send_data(int rank, int peer, Time now) {
  Stream& out = stream(rank, peer);
  if (!out.writable || out.data >= options_.capacity) return false;
  const auto has_bytes = [](const CollectiveCall& call, std::uint32_t send) {
    return !static_cast<const WorldCall&>(call).executor.ready(send).empty();
  };
  const auto next = at(rank).core->next_data(Rank(peer), has_bytes);
  if (!next) return false;
  auto& call = static_cast<WorldCall&>(*next->call);
  const std::span<const std::byte> ready = call.executor.ready(next->send);
  const std::size_t most = std::min(ready.size(), options_.most_bytes);
  const std::size_t size = options_.whole_frames ? most : 1 + prng_.below(most);
  const std::span<const std::byte> bytes = ready.first(size);
  const DataFrame header = at(rank).core->header(call, call.plan().sends()[next->send].arrival,
                                                 static_cast<std::uint32_t>(bytes.size()));
  write(rank, peer, Data{header, {bytes.begin(), bytes.end()}}, now);
  call.executor.sent(next->send, bytes.size());
  progress(rank, call);
  return true;
}

void World::pump(int rank, Time now) {
  RankState& state = at(rank);
  bool moved = true;
  while (moved) {
    moved = false;
    Rank to{0};
    ControlFrame frame;
    while (state.core->poll_control(to, frame)) {
      write(rank, to.value(), Control{state.core->started(), frame}, now);
      moved = true;
    }
    for (int peer = 0; peer < options_.ranks; ++peer) {
      while (send_data(rank, peer, now)) moved = true;
    }
    const std::vector<CollectiveCall*> running = state.core->running();
    for (CollectiveCall* call : running) {
      if (call->done()) state.core->finish(*call);
    }
    CollectiveCall* over = nullptr;
    Status status = ok_status();
    while (state.core->poll_over(over, status)) {
      moved = true;
      auto& call = static_cast<WorldCall&>(*over);
      if (call.result) complain(fmt::format("rank {}: call {} ended twice", rank, call.number));
      if (now > call.deadline) complain(fmt::format("rank {}: {} ended late", rank, call.number));
      if (status.ok() && !call.is_exact(options_.ranks)) {
        complain(fmt::format("rank {}: call {} has a wrong sum", rank, call.number));
      }
      call.result = status;
      --state.running;
    }
  }
  // A driver announces a failure even if no call runs, but not that this rank leaves. This one does
  // so at once (docs/adr/0016: doubts).
  const std::optional<Error>& broken = state.core->broken();
  if (broken && broken->code() != ErrorCode::kCancelled && !announced_) announced_ = broken;
}

bool World::may_deliver(int from, int to) const {
  const Stream& in = stream(from, to);
  return lives(to) && !at(to).left && !in.items.empty() && !in.stalled && !in.closed;
}

void World::close(int from, int to, const std::string& why) {
  Stream& in = stream(from, to);
  in.closed = true;
  in.stalled = false;
  in.items.clear();
  in.data = 0;
  stream(to, from).writable = false;
  at(to).core->on_closed(Rank(from), why);
}

bool World::take(int from, int to, const Data& data, Time now) {
  Stream& in = stream(from, to);
  if (in.drops) return true;
  DataFrame frame = data.frame;
  if (options_.forgets_order) frame.started = ~std::uint32_t{0};
  CollectiveCall* taker = nullptr;
  switch (at(to).core->on_data(Rank(from), frame, taker)) {
    case DataVerdict::kStall:
      if (options_.forgets_stalls) return true;
      at(to).core->on_stall(Rank(from), frame.operation, now);
      in.stalled = true;
      return false;
    case DataVerdict::kDrop:
      in.drops = true;
      return true;
    case DataVerdict::kNonsense:
      complain(fmt::format("rank {} took data of rank {} for nonsense", to, from));
      return true;
    case DataVerdict::kTake:
      break;
  }
  auto& call = static_cast<WorldCall&>(*taker);
  const std::span<const std::byte> bytes(data.bytes);
  const std::size_t first = options_.whole_frames ? 0 : prng_.below(bytes.size() + 1);
  for (const auto part : {bytes.first(first), bytes.subspan(first)}) {
    if (part.empty()) continue;
    call.executor.consume(frame.arrival, part);
    progress(to, call);
  }
  return true;
}

void World::deliver(int from, int to, Time now) {
  Stream& in = stream(from, to);
  CHECK(may_deliver(from, to));
  if (const auto* data = std::get_if<Data>(&in.items.front().what)) {
    if (!take(from, to, *data, now)) return;
    --in.data;
    in.items.pop_front();
    if (lives(from)) pump(from, now);  // there is room again
  } else {
    const Item item = std::move(in.items.front());
    in.items.pop_front();
    if (std::holds_alternative<Hello>(item.what)) {
      stream(to, from).writable = true;
      join(to, from);
    } else if (const auto* control = std::get_if<Control>(&item.what)) {
      const std::uint32_t started = options_.forgets_order ? ~std::uint32_t{0} : control->started;
      const std::string why = at(to).core->on_control(Rank(from), started, control->frame);
      if (!why.empty()) close(from, to, why);
    } else {
      close(from, to, "its connection closed");
    }
  }
  // A rank that is broken drops the data that comes, and reads on.
  if (at(to).core->broken()) {
    for (int peer = 0; peer < options_.ranks; ++peer) {
      Stream& other = stream(peer, to);
      other.drops = true;
      if (!std::exchange(other.stalled, false)) continue;
      for (const Item& waiting : other.items) on_item_(peer, to, std::max(waiting.at, now));
    }
  }
  pump(to, now);
}

std::optional<Time> World::next_timer(int rank) const {
  if (!lives(rank)) return std::nullopt;
  return at(rank).core->next_timer();
}

void World::timer(int rank, Time now) {
  at(rank).core->on_timer(now);
  pump(rank, now);
}

void World::die(int rank, Time now, std::size_t lost_frames) {
  at(rank).dead = true;
  for (int peer = 0; peer < options_.ranks; ++peer) {
    if (peer == rank) continue;
    Stream& out = stream(rank, peer);
    for (std::size_t i = 0; i < lost_frames && out.items.size() > 1; ++i) {
      if (std::holds_alternative<Data>(out.items.back().what)) --out.data;
      out.items.pop_back();
    }
    if (out.writable) write(rank, peer, Closed{}, now);
    stream(peer, rank).items.clear();
    stream(peer, rank).data = 0;
  }
}

bool World::all_over(int rank) const {
  return std::ranges::all_of(at(rank).calls,
                             [](const auto& call) { return call->result.has_value(); });
}

bool World::may_leave(int rank) const {
  const RankState& state = at(rank);
  return lives(rank) && !state.left && all_over(rank) &&
         (state.calls.size() == state.calls_until || state.core->broken());
}

void World::leave(int rank, Time now) {
  at(rank).core->leave();
  pump(rank, now);
  at(rank).left = true;
  for (int peer = 0; peer < options_.ranks; ++peer) {
    if (peer != rank && stream(rank, peer).writable) write(rank, peer, Closed{}, now);
    stream(peer, rank).items.clear();
    stream(peer, rank).data = 0;
  }
}

bool World::hangs(int from, int to) const {
  const Stream& in = stream(from, to);
  return lives(to) && !at(to).left && in.stalled && !in.items.empty() &&
         std::holds_alternative<Closed>(in.items.back().what);
}

void World::hang_up(int from, int to, Time now) {
  Stream& in = stream(from, to);
  at(to).core->on_hang_up(Rank(from));
  in.stalled = false;
  in.drops = true;
  for (const Item& item : in.items) on_item_(from, to, std::max(item.at, now));
}

bool World::may_cut(int from, int to) const {
  const Stream& in = stream(from, to);
  if (!at(from).dead || !lives(to) || in.closed || in.items.empty()) return false;
  return in.items.size() > kept_by_cut(in) + 1;
}

std::size_t World::kept_by_cut(const Stream& in) {
  return in.stalled || std::holds_alternative<Hello>(in.items.front().what) ? 1 : 0;
}

void World::cut(int from, int to) {
  CHECK(may_cut(from, to));
  Stream& in = stream(from, to);
  const auto begin = in.items.begin() + static_cast<std::ptrdiff_t>(kept_by_cut(in));
  in.items.erase(begin, in.items.end() - 1);
}

std::string World::final_violation(int culprit) const {
  if (!violation_.empty()) return violation_;
  for (int r = 0; r < options_.ranks; ++r) {
    if (!lives(r)) continue;
    const RankState& state = at(r);
    if (culprit < 0 && state.calls.size() < options_.calls.size()) {
      return fmt::format("rank {} made {} calls", r, state.calls.size());
    }
    for (const auto& call : state.calls) {
      if (!call->result) return fmt::format("rank {}: call {} never ended", r, call->number);
      // A rank that never reached another knows nothing of it; the store would tell it why.
      if (call->result->ok() || !call->began) continue;
      const std::string& why = call->result->error().message();
      if (culprit < 0) return fmt::format("rank {}: {}", r, why);
      if (!names(why, culprit)) {
        return fmt::format("rank {} does not blame rank {}: {}", r, culprit, why);
      }
    }
    const bool stalls = std::ranges::any_of(streams_, [](const Stream& in) { return in.stalled; });
    if (!state.core->running().empty() || state.core->has_control() ||
        (state.core->next_timer() && !stalls)) {
      return fmt::format("rank {} keeps something", r);
    }
  }
  return "";
}

}  // namespace thalweg::proto::collective_test
