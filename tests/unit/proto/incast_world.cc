#include "incast_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace thalweg::proto {
namespace {

constexpr std::int64_t kIncastPacket = 1502;
constexpr std::uint64_t kIncastSteps = 5'000'000;

}  // namespace

IncastWorld::IncastWorld(const IncastOptions& options) : options_(options), prng_(options.seed) {
  options_.grants.line_rate = options.rate;
  options_.grants.order = options.order;
  options_.grants.seed = prng_.next();
  if (options.receiver_grants) grants_ = std::make_unique<GrantScheduler>(options_.grants);
  for (int i = 0; i < options.senders; ++i) {
    Pair pair;
    DlcpOptions end;
    end.peer = fmt::format("host {}", i);
    end.rate.line_rate = options.rate;
    end.burst_segments = static_cast<std::uint32_t>(1 + prng_.below(3));
    end.grace.initial = Duration::microseconds(300);
    end.grace.most = Duration::milliseconds(5);
    end.want = {.after = Duration::microseconds(400), .most = Duration::milliseconds(5)};
    end.order = options.order;
    end.order_seed = prng_.next();
    if (options.all_senders_grant) pair.grants = std::make_unique<GrantScheduler>(options_.grants);
    pair.sender = std::make_unique<DlcpEndpoint>(end, pair.grants.get(), 0);
    pair.receiver =
        std::make_unique<DlcpEndpoint>(end, grants_.get(), static_cast<std::uint32_t>(i));
    pairs_.push_back(std::move(pair));
  }
  tracks_.resize(pairs_.size());
  plan_transfers();
}

void IncastWorld::plan_transfers() {
  for (int sender = 0; sender < options_.senders; ++sender) {
    for (int i = 0; i < options_.transfers; ++i) {
      Happening start;
      start.at = Time() + draw(Duration::microseconds(500));
      start.sender = sender;
      start.spec.key = static_cast<std::uint64_t>(i);
      start.spec.elements = 1 + static_cast<std::int64_t>(prng_.below(
                                    static_cast<std::uint64_t>(options_.most_segments) * 350));
      const double parts[] = {0, options_.bound, options_.bound / 2};
      start.spec.bound =
          *LossBound::of(options_.mixed_bounds ? parts[prng_.below(3)] : options_.bound);
      start.spec.urgency = static_cast<std::uint32_t>(prng_.below(3));
      start.spec.deadline = Duration::milliseconds(20'000);
      push(start);
    }
  }
}

Duration IncastWorld::draw(Duration most) {
  if (most == Duration()) return most;
  return Duration::picoseconds(
      static_cast<std::int64_t>(prng_.below(static_cast<std::uint64_t>(most.ps()))));
}

void IncastWorld::push(Happening happening) {
  happening.order = next_order_++;
  happenings_.push(std::move(happening));
}

void IncastWorld::fail(const std::string& text) {
  if (broken_.empty()) broken_ = fmt::format("at {}: {}", to_string(now_.since_start()), text);
}

std::string IncastWorld::run() {
  for (std::uint64_t step = 0; broken_.empty(); ++step) {
    if (step == kIncastSteps) fail("no end in sight");
    std::optional<Time> next;
    if (!happenings_.empty()) next = happenings_.top().at;
    const auto sooner = [&](std::optional<Time> timeout) {
      if (timeout) next = next ? std::min(*next, *timeout) : *timeout;
    };
    if (grants_ != nullptr && options_.watches_silence) sooner(grants_->next_timeout());
    for (const Pair& pair : pairs_) {
      for (const DlcpEndpoint* end : {pair.sender.get(), pair.receiver.get()}) {
        sooner(end->next_timeout());
      }
    }
    if (!next) break;
    now_ = std::max(now_, *next);
    while (!happenings_.empty() && happenings_.top().at <= now_) {
      const Happening happening = happenings_.top();
      happenings_.pop();
      happen(happening);
    }
    drive_all();
  }
  if (broken_.empty()) check_end();
  return broken_;
}

IncastWorld::Track& IncastWorld::track(int sender, std::uint32_t transfer) {
  auto& tracks = tracks_[static_cast<std::size_t>(sender)];
  if (tracks.size() <= transfer) tracks.resize(transfer + 1);
  return tracks[transfer];
}

void IncastWorld::happen(const Happening& happening) {
  Pair& pair = pairs_[static_cast<std::size_t>(happening.sender)];
  switch (happening.kind) {
    case Happening::Kind::kStart:
      started_ += 2;
      if (!pair.receiver->start_recv(happening.spec, now_).ok()) fail("start_recv");
      if (!pair.sender->start_send(happening.spec, SegmentTag{1}, now_).ok()) fail("start_send");
      break;
    case Happening::Kind::kData: {
      const Placement placement = pair.receiver->on_data(happening.header, false, now_);
      if (placement.verdict != Placement::Verdict::kPlace) break;
      Track& of = track(happening.sender, happening.header.transfer);
      if (!of.offsets.insert(placement.offset.count()).second) fail("placed twice");
      break;
    }
    case Happening::Kind::kControl:
      if (!happening.to_receiver) {
        if (const auto* ready = std::get_if<wire::ReadyMessage>(happening.message.get())) {
          Track& of = track(happening.sender, ready->transfer);
          of.told = of.first = ready->first;
        }
        if (const auto* grant = std::get_if<wire::GrantMessage>(happening.message.get())) {
          Track& of = track(happening.sender, grant->transfer);
          of.told = std::max(of.told, grant->segments);
        }
      }
      (happening.to_receiver ? *pair.receiver : *pair.sender).on_control(*happening.message, now_);
      break;
  }
}

void IncastWorld::drive_all() {
  for (int i = 0; i < options_.senders; ++i) drive(i);
  if (grants_ != nullptr) {
    if (options_.watches_silence) grants_->on_timeout(now_);
    GrantScheduler::Grant grant;
    while (grants_->poll(grant)) post_grant(grant);
    check_flight();
  }
}

void IncastWorld::drive(int sender) {
  Pair& pair = pairs_[static_cast<std::size_t>(sender)];
  pair.sender->on_timeout(now_);
  pair.receiver->on_timeout(now_);
  DataBatch batch;
  while (pair.sender->poll_data(now_, 4, batch)) send(sender, batch);
  wire::ControlMessage message;
  while (pair.sender->poll_control(message)) post(sender, true, message);
  while (pair.receiver->poll_control(message)) post(sender, false, message);
  take_outcomes(*pair.sender);
  take_outcomes(*pair.receiver);
}

void IncastWorld::send(int sender, const DataBatch& batch) {
  Track& of = track(sender, batch.transfer);
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    ++sent_;
    if (batch.retransmission) ++retransmitted_;
    if (!batch.retransmission && ++of.left > of.told) fail("more left than was granted");
    const bool twice = prng_.chance(options_.duplication);
    for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
      Happening data;
      data.kind = Happening::Kind::kData;
      data.sender = sender;
      data.header = batch.header(i);
      const Time arrives = now_ + options_.delay + draw(options_.jitter);
      const Time free = std::max(link_free_, arrives);
      const double waiting = (free - arrives).s() * options_.rate.bytes_per_second();
      if (prng_.chance(options_.loss) || waiting > static_cast<double>(options_.buffer)) {
        ++lost_;
        continue;
      }
      link_free_ = free + options_.rate.transmission_time(Bytes(kIncastPacket));
      data.at = link_free_;
      push(data);
    }
  }
}

// Messages on the stream keep their order.
void IncastWorld::post(int sender, bool to_receiver, const wire::ControlMessage& message) {
  Pair& pair = pairs_[static_cast<std::size_t>(sender)];
  if (const auto* want = std::get_if<wire::WantMessage>(&message))
    busy_wants_ += want->busy ? 1 : 0;
  Time& last = to_receiver ? pair.letters_to_receiver : pair.letters_to_sender;
  last = std::max(last, now_ + options_.delay + draw(options_.jitter));
  Happening letter;
  letter.at = last;
  letter.kind = Happening::Kind::kControl;
  letter.sender = sender;
  letter.to_receiver = to_receiver;
  letter.message = std::make_shared<wire::ControlMessage>(message);
  push(letter);
}

void IncastWorld::post_grant(const GrantScheduler::Grant& grant) {
  const int copies = prng_.chance(options_.grant_duplication) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    if (prng_.chance(options_.grant_loss)) continue;
    Happening letter;
    letter.at = now_ + options_.delay + draw(options_.grant_jitter);
    letter.kind = Happening::Kind::kControl;
    letter.sender = static_cast<int>(grant.peer);
    letter.message =
        std::make_shared<wire::ControlMessage>(wire::GrantMessage{grant.transfer, grant.segments});
    push(letter);
  }
}

void IncastWorld::take_outcomes(DlcpEndpoint& endpoint) {
  TransferOutcome outcome;
  while (endpoint.poll_event(outcome)) {
    ++ended_;
    digest_ = mix_bits(digest_ ^ static_cast<std::uint64_t>(outcome.ended.since_start().ps()) ^
                       static_cast<std::uint64_t>(outcome.arrived) << 40);
    if (!outcome.ok()) fail(outcome.error);
    const std::int32_t missing = outcome.segments - outcome.arrived;
    const double bound = options_.bound;
    if (missing > LossBound::of(bound)->allowed_missing(outcome.segments)) fail("below the bound");
  }
}

void IncastWorld::check_flight() {
  std::int64_t bursts = 0;
  for (const auto& tracks : tracks_) {
    for (const Track& of : tracks) bursts += of.first == wire::kUngranted ? 0 : of.first;
  }
  const Bytes most = std::max(grants_->limit(), Bytes(options_.grants.quantum * kIncastPacket));
  // A silent transfer that comes back takes its places again.
  const bool strict = !options_.watches_silence;
  if (strict && grants_->in_flight() > most + Bytes(bursts * kIncastPacket)) {
    fail("too much in flight");
  }
  if (grants_->in_flight() < Bytes(0)) fail("less than nothing in flight");
}

void IncastWorld::check_end() {
  if (ended_ != started_) fail(fmt::format("{} ends of {} ended", ended_, started_));
  for (const Pair& pair : pairs_) {
    if (!pair.sender->idle() || !pair.receiver->idle()) fail("an endpoint keeps something");
    if (pair.grants != nullptr && pair.grants->busy()) fail("an idle host is busy");
  }
  if (grants_ == nullptr) return;
  if (grants_->transfers() != 0) fail("the scheduler keeps transfers");
  if (grants_->in_flight() != Bytes(0)) fail("the scheduler has something in flight");
}

}  // namespace thalweg::proto
