#include "net/group/drive/channels.h"

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
// The first rank publishes its first measured decision with operation kFirstMeasured. Each decision
// holds from kRarer times the number of its operation on. The last one holds from kLastWord on.
constexpr std::size_t kFirstMeasured = 4;
constexpr std::size_t kRarer = 4;
constexpr std::size_t kLastWord = 1024;
// Other engines wait this much longer than the first, so that the first engine, which names the
// cause better, reports a late operation.
constexpr Duration kFirstSay = Duration::milliseconds(50);
// How long to wait for the first engine's reason when the store fails.
constexpr Duration kKnowsBetter = Duration::milliseconds(250);
constexpr auto kPause = std::chrono::milliseconds(10);
// How long one try to read a decision may take.
constexpr Duration kTry = Duration::milliseconds(500);

}  // namespace

std::string ChannelsWord::to_string() const { return fmt::format("{},{}", count, again); }

Result<ChannelsWord> ChannelsWord::parse(const std::string& text, std::size_t from) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto count = number_in<std::size_t>(std::string_view(text).substr(0, comma));
  const auto again =
      number_in<std::size_t>(std::string_view(text).substr(std::min(comma + 1, text.size())));
  if (!count || !again || *count < 1 || *count > kMaxChannels || (*again != 0 && *again <= from)) {
    return Error(ErrorCode::kInternal,
                 fmt::format("rank 0 says '{}'; a number from 1 to {}, a comma, and the next "
                             "operation to ask with, after {}, or 0 are allowed",
                             text, kMaxChannels, from));
  }
  return ChannelsWord{*count, *again};
}

void Channels::set_first(std::shared_ptr<Engine> engine) {
  const std::lock_guard lock(mutex_);
  CHECK(engines_.empty());
  engines_.push_back(std::move(engine));
}

bool Channels::may_divide(const State& op) const {
  return op.plan && op.plan->tensor_bytes() >= 2 * options_.least_part &&
         op.plan->least_chunk() >= 2 * exec::RankPlan::kLeastPart;
}

std::size_t Channels::parts_of(const State& op) const {
  return std::min({op.dlcp ? kMostInFlight : word_.count,
                   op.plan->tensor_bytes() / options_.least_part,
                   op.plan->least_chunk() / exec::RankPlan::kLeastPart});
}

Status Channels::open(Time until) {
  if (!options_.is_first) return ok_status();
  const bool measures = !options_.at_once && options_.most > 1;
  const ChannelsWord first{measures ? 1 : options_.most, measures ? kFirstMeasured * kRarer : 0};
  return options_.say(1, first.to_string(), until);
}

void Channels::start(const std::shared_ptr<State>& op) {
  const std::lock_guard order(order_);
  Engine& first = *engines_.front();
  if (left_ || first.broken()) {
    first.start(op);  // ends the operation with the reason
    return;
  }
  if (!op->dlcp) {
    const Time until = monotonic_now() + op->limit;
    ++large_;
    Status asked = large_ == word_.again ? ask(until) : ok_status();
    if (asked.ok()) asked = say_next(until);
    if (!asked.ok()) {
      const Error why = reason_of(asked.error());
      first.break_with(why);
      op->end(why.within(op->text));
      return;
    }
    op->limit = until - monotonic_now();
  }
  if (options_.is_first && !op->dlcp && word_.again > 0) measure(*op);
  const std::size_t count = parts_of(*op);
  if (count == 1) {
    first.start(op);
    return;
  }
  divide(op, count);
  if (op->dlcp) {
    for (const auto& part : op->parts) first.start(part);
    return;
  }
  for (std::size_t i = 1; i < count; ++i) engines_[i]->post(op->parts[i]);
  first.start(op->parts.front());
}

// A rank that dies may take the store with it. Then the first engine soon knows the better reason.
Error Channels::reason_of(const Error& error) const {
  const Time until = monotonic_now() + kKnowsBetter;
  while (monotonic_now() < until) {
    if (const auto broken = engines_.front()->broken()) return *broken;
    std::this_thread::sleep_for(kPause);
  }
  return error.within("channels");
}

Status Channels::ask(Time until) {
  THALWEG_TRY(const ChannelsWord word, hear(until));
  THALWEG_TRY_STATUS(make_engines(word.count, until));
  if (word.count != word_.count) {
    options_.log.info("tensors from {} bytes on are divided among {} channels", options_.least_part,
                      word.count);
  }
  word_ = word;
  return ok_status();
}

// Asks in short tries, because the communicator may break meanwhile.
Result<ChannelsWord> Channels::hear(Time until) const {
  while (true) {
    const Time now = monotonic_now();
    const Result<std::string> text = options_.hear(large_, std::min(until, now + kTry));
    if (text.ok()) return ChannelsWord::parse(*text, large_);
    if (const auto broken = engines_.front()->broken()) return *broken;
    if (monotonic_now() >= until) return text.error();
    std::this_thread::sleep_for(kPause);
  }
}

Status Channels::say_next(Time until) {
  if (!options_.is_first || large_ * kRarer != word_.again) return ok_status();
  const bool is_fast = fastest_.exchange(0) > kSlowNetwork;
  const std::size_t from = word_.again;
  const ChannelsWord next{is_fast ? options_.most : 1, from < kLastWord ? from * kRarer : 0};
  return options_.say(from, next.to_string(), until);
}

void Channels::measure(State& op) {
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

void Channels::divide(const std::shared_ptr<State>& op, std::size_t count) {
  CHECK(op->dlcp || count <= engines_.size());
  op->host = shared_from_this();
  op->parts_left = count;
  for (std::size_t i = 0; i < count; ++i) {
    auto part = std::make_shared<State>();
    part->host = engines_[op->dlcp ? 0 : i];
    part->text = fmt::format("{}, part {} of {}", op->text, i + 1, count);
    // Ranks that divide the operation differently must notice.
    part->signature = op->signature ^ (std::uint64_t{count} << 32 | i);
    part->plan = std::make_shared<const exec::RankPlan>(op->plan->part(i, count));
    part->type = op->type;
    part->op = op->op;
    part->part_step = op->part_step;
    part->priority = op->priority;
    part->awaited = op->awaited && i == 0;
    part->limit = i == 0 || op->dlcp ? op->limit : op->limit + kFirstSay;
    part->dlcp = op->dlcp;
    part->dlcp_peers = op->dlcp_peers;
    if (op->notes) part->notes = std::make_shared<StepNotes>();
    for (std::size_t b = 0; b < op->memory.size(); ++b) {
      const std::size_t whole = op->plan->buffers()[b].bytes;
      part->memory.push_back(op->memory[b] + exec::RankPlan::part_begin(whole, i, count));
    }
    part->on_over = [self = shared_from_this(), op] { self->part_over(*op); };
    op->parts.push_back(std::move(part));
  }
}

// Called with the lock of the part's engine.
void Channels::part_over(State& op) {
  if (--op.parts_left > 0) return;
  const bool good =
      std::ranges::all_of(op.parts, [](const auto& part) { return part->result->ok(); });
  if (good && op.last_step) op.last_step();
  const std::lock_guard lock(mutex_);
  op.end(good ? ok_status() : Status(broken_.value_or(has_left()).within(op.text)));
  changed_.notify_all();
}

Status Channels::wait(State& op) {
  // The parts' results are ignored: part_over() makes one result of all of them.
  for (const auto& part : op.parts) static_cast<void>(part->host->wait(*part));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool Channels::over(const State& op) {
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
