#include "net/group/channels/channels.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/number.h"
#include "net/io/system.h"
#include "net/job/environment.h"

namespace thalweg::net {
namespace {

// Parts over DLCP: enough to keep the network busy while the end of one part is waited for.
constexpr std::size_t kMostInFlight = 4;
// Bits per second of a network of 10 Gb/s in both directions together. One thread moves more.
constexpr double kSlowNetwork = 20e9;
// Where the rate of the network is not known, the first rank decides with this operation, and the
// decision holds from the second on.
constexpr std::size_t kMeasured = 4;
constexpr std::size_t kDecidedFrom = 16;
// Other engines wait this much longer than the first, so that the first engine, which names the
// cause better, reports a late operation.
constexpr Duration kFirstSay = Duration::milliseconds(50);
// How long to wait for the first engine's reason when the store fails.
constexpr Duration kKnowsBetter = Duration::milliseconds(250);
constexpr auto kPause = std::chrono::milliseconds(10);
// How long one try to read a decision may take.
constexpr Duration kTry = Duration::milliseconds(500);

}  // namespace

std::string ChannelsWord::to_string() const {
  return count ? fmt::format("{}", *count) : std::string(kLater);
}

Result<ChannelsWord> ChannelsWord::parse(const std::string& text) {
  if (text == kLater) return ChannelsWord{};
  const auto count = number_in<std::size_t>(text);
  if (!count || *count < 1 || *count > kMaxChannels) {
    return Error(ErrorCode::kInternal,
                 fmt::format("rank 0 says '{}'; a number from 1 to {} or '{}' is allowed", text,
                             kMaxChannels, kLater));
  }
  return ChannelsWord{*count};
}

void Channels::set_first(std::shared_ptr<Engine> engine) {
  const std::lock_guard lock(mutex_);
  CHECK(engines_.empty());
  engines_.push_back(std::move(engine));
}

bool Channels::may_divide(const Op& op) const {
  return op.plan && op.plan->tensor_bytes() >= 2 * options_.least_part &&
         op.plan->least_chunk() >= 2 * exec::RankPlan::kLeastPart;
}

std::size_t Channels::parts_of(const Op& op) const {
  return std::min({op.is_dlcp ? kMostInFlight : word_.count.value_or(1),
                   op.plan->tensor_bytes() / options_.least_part,
                   op.plan->least_chunk() / exec::RankPlan::kLeastPart});
}

Status Channels::open(Time until) {
  if (!options_.is_first) return ok_status();
  ChannelsWord first;
  if (options_.fast || options_.most == 1) {
    first.count = options_.fast.value_or(false) ? options_.most : 1;
  }
  return options_.say(1, first.to_string(), until);
}

void Channels::start(const std::shared_ptr<Op>& op) {
  const std::lock_guard order(order_);
  Engine& first = *engines_.front();
  if (left_ || first.broken()) {
    first.start(op);  // ends the operation with the reason
    return;
  }
  if (!op->is_dlcp) {
    const Time until = monotonic_now() + op->limit;
    // A while before the deadline, which reason_of() must keep, too.
    const Time answered_by = until - std::min(op->limit / 8, kKnowsBetter);
    ++large_;
    const bool asks = large_ == 1 || (large_ == kDecidedFrom && !word_.count);
    Status asked = asks ? ask(answered_by) : ok_status();
    if (asked.ok()) asked = say_measured(answered_by);
    if (!asked.ok()) {
      const Error why = reason_of(asked.error(), until);
      first.break_with(why);
      op->end(why.within(op->text));
      return;
    }
    op->limit = until - monotonic_now();
  }
  if (options_.is_first && !op->is_dlcp && !word_.count) measure(*op);
  const std::size_t count = parts_of(*op);
  if (count == 1) {
    first.start(op);
    return;
  }
  divide(op, count);
  if (op->is_dlcp) {
    for (const auto& part : op->division->parts) first.start(part);
    return;
  }
  for (std::size_t i = 1; i < count; ++i) engines_[i]->post(op->division->parts[i]);
  first.start(op->division->parts.front());
}

// A rank that dies may take the store with it. Then the first engine soon knows the better reason.
Error Channels::reason_of(const Error& error, Time until) const {
  const Time limit = std::min(until, monotonic_now() + kKnowsBetter);
  while (monotonic_now() < limit) {
    if (const auto broken = engines_.front()->broken()) return *broken;
    std::this_thread::sleep_for(kPause);
  }
  return error.within("channels");
}

Status Channels::ask(Time until) {
  THALWEG_TRY(const ChannelsWord word, hear(until));
  const std::size_t count = word.count.value_or(1);
  THALWEG_TRY_STATUS(make_engines(count, until));
  if (count > 1) {
    options_.log.info("tensors from {} bytes on are divided among {} channels", options_.least_part,
                      count);
  }
  word_ = word;
  return ok_status();
}

// In short tries, because the communicator may break meanwhile. A store that is gone stays away.
Result<ChannelsWord> Channels::hear(Time until) const {
  while (true) {
    const Time now = monotonic_now();
    const Result<std::string> text = options_.hear(large_, std::min(until, now + kTry));
    if (text.ok()) return ChannelsWord::parse(*text);
    if (const auto broken = engines_.front()->broken()) return *broken;
    const bool gone = text.error().code() == ErrorCode::kPeerLost;
    if (gone || monotonic_now() >= until) return text.error();
    std::this_thread::sleep_for(kPause);
  }
}

Status Channels::say_measured(Time until) {
  if (!options_.is_first || word_.count || large_ != kMeasured) return ok_status();
  const ChannelsWord word{fastest_ > kSlowNetwork ? options_.most : 1};
  return options_.say(kDecidedFrom, word.to_string(), until);
}

void Channels::measure(Op& op) {
  double bits = 0;
  for (const exec::RankPlan::Buffer& buffer : op.plan->buffers()) {
    const std::size_t transfers = buffer.arrivals.size() + buffer.sends.size();
    bits += 8.0 * static_cast<double>(buffer.bytes * transfers);
  }
  op.on_over = [self = shared_from_this(), bits, began = monotonic_now(),
                then = std::move(op.on_over)] {
    const double rate = bits / std::max((monotonic_now() - began).ms() * 1e-3, 1e-9);
    double before = self->fastest_;
    while (rate > before && !self->fastest_.compare_exchange_weak(before, rate)) {
    }
    if (then) then();
  };
}

Status Channels::make_engines(std::size_t count, Time until) {
  for (std::size_t number = engines_.size(); number < count; ++number) {
    const auto on_broken = [self = weak_from_this()](const Error& why) {
      if (const auto alive = self.lock()) alive->broken(why);
    };
    THALWEG_TRY(std::shared_ptr<Engine> engine, options_.make_engine(number, on_broken, until));
    const std::lock_guard lock(mutex_);
    if (broken_) engine->abandon(*broken_);
    engines_.push_back(std::move(engine));
  }
  return ok_status();
}

void Channels::divide(const std::shared_ptr<Op>& op, std::size_t count) {
  CHECK(op->is_dlcp || count <= engines_.size());
  op->host = shared_from_this();
  op->division = std::make_unique<Op::Division>();
  op->division->left = count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::shared_ptr<Op> part = op->alike();
    part->host = engines_[op->is_dlcp ? 0 : i];
    part->text = fmt::format("{}, part {} of {}", op->text, i + 1, count);
    // Ranks that divide the operation differently must notice.
    part->signature = op->signature ^ (std::uint64_t{count} << 32 | i);
    part->plan = std::make_shared<const exec::RankPlan>(op->plan->part(i, count));
    part->type = op->type;
    part->op = op->op;
    part->part_step = op->part_step;
    part->priority = op->priority;
    part->awaited = op->awaited && i == 0;
    part->stated = op->stated;
    part->limit = i == 0 || op->is_dlcp ? op->limit : op->limit + kFirstSay;
    if (op->notes) part->notes = std::make_shared<StepNotes>();
    for (std::size_t b = 0; b < op->memory.size(); ++b) {
      const std::size_t whole = op->plan->buffers()[b].bytes;
      part->memory.push_back(op->memory[b] + exec::RankPlan::part_begin(whole, i, count));
    }
    part->on_over = [self = shared_from_this(), op] { self->part_over(*op); };
    op->division->parts.push_back(part);
  }
}

// Called with the lock of the part's engine.
void Channels::part_over(Op& op) {
  if (--op.division->left > 0) return;
  const bool good =
      std::ranges::all_of(op.division->parts, [](const auto& part) { return part->result->ok(); });
  if (good && op.last_step) op.last_step();
  const std::lock_guard lock(mutex_);
  op.end(good ? ok_status() : Status(broken_.value_or(has_left()).within(op.text)));
  changed_.notify_all();
}

Status Channels::wait(Operation::State& state) {
  auto& op = static_cast<Op&>(state);
  // The parts' results are ignored: part_over() makes one result of all of them.
  for (const auto& part : op.division->parts) static_cast<void>(part->host->wait(*part));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool Channels::over(const Operation::State& op) {
  const std::lock_guard lock(mutex_);
  return op.result.has_value();
}

void Channels::broken(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  broken_ = why;
  for (const auto& engine : engines_) engine->abandon(why);
}

void Channels::say_goodbye() {
  std::vector<std::shared_ptr<Engine>> engines;
  {
    const std::lock_guard lock(mutex_);
    engines = engines_;
  }
  // A thread that waits in start() notices this.
  for (const auto& engine : engines) engine->say_goodbye();
}

void Channels::leave() {
  say_goodbye();
  const std::lock_guard order(order_);
  left_ = true;
  for (const auto& engine : engines_) engine->say_goodbye();
  for (const auto& engine : engines_) engine->leave();
}

int usual_channels(int local_ranks) {
  constexpr int kMost = 4;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int mine = CPU_COUNT(&allowed);
  // Ranks that are each bound to their own cores do not share them.
  const bool bound = mine < get_nprocs() && mine * local_ranks <= get_nprocs();
  return std::clamp(bound ? mine : mine / local_ranks, 1, kMost);
}

}  // namespace thalweg::net
