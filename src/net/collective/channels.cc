#include "net/collective/channels.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "net/bootstrap/environment.h"
#include "net/system.h"

namespace thalweg {
namespace {

// Over DLCP: enough that the link is busy while the end of a part is waited for.
constexpr std::size_t kMostInFlight = 4;
// What ten gigabits both ways allow. One thread moves more.
constexpr double kSlowNetwork = 20e9;
// The first word that is measured comes with this operation, the next ones with others this many
// times as far on.
constexpr std::size_t kFirstMeasured = 4;
constexpr std::size_t kRarer = 8;
constexpr Duration kTry = Duration::milliseconds(500);

// The whole of `text`; none: it is no number.
std::optional<std::size_t> number_of(std::string_view text) {
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string ChannelsWord::to_string() const { return fmt::format("{},{}", count, again); }

Result<ChannelsWord> ChannelsWord::parse(const std::string& text, std::size_t from) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto count = number_of(std::string_view(text).substr(0, comma));
  const auto again = number_of(std::string_view(text).substr(std::min(comma + 1, text.size())));
  if (!count || !again || *count < 1 || *count > kMaxChannels || (*again != 0 && *again <= from)) {
    return Error(
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
         op.plan->least_chunk() >= 2 * RankPlan::kLeastPart;
}

std::size_t Channels::parts_of(const State& op) const {
  return std::min({op.dlcp ? kMostInFlight : word_.count,
                   op.plan->tensor_bytes() / options_.least_part,
                   op.plan->least_chunk() / RankPlan::kLeastPart});
}

void Channels::start(const std::shared_ptr<State>& op) {
  const std::lock_guard order(order_);
  Engine& first = *engines_.front();
  if (!op->dlcp && ++large_ == word_.again) {
    const Status asked = ask(monotonic_now() + op->limit);
    if (!asked.ok()) {
      const std::string why = asked.error().within("channels").message();
      first.abandon(why);
      op->end(Error(fmt::format("{}: {}", op->text, why)));
      return;
    }
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

Status Channels::ask(Time until) {
  if (options_.is_first) {
    word_ = word_of_first();
    THALWEG_TRY_STATUS(options_.say(large_, word_.to_string(), until));
  } else {
    THALWEG_TRY(word_, hear(until));
  }
  return make_engines(until);
}

ChannelsWord Channels::word_of_first() {
  if (options_.at_once || options_.most == 1) return {options_.most, 0};
  if (large_ == 1) return {1, kFirstMeasured};
  const bool is_fast = fastest_.exchange(0) > kSlowNetwork;
  return {is_fast ? options_.most : 1, large_ * kRarer};
}

// In short tries: the communicator may break meanwhile.
Result<ChannelsWord> Channels::hear(Time until) const {
  while (true) {
    const Time now = monotonic_now();
    const Result<std::string> text = options_.hear(large_, std::min(until, now + kTry));
    if (text.ok()) return ChannelsWord::parse(*text, large_);
    if (const std::string broken = engines_.front()->broken(); !broken.empty()) {
      return Error(broken);
    }
    if (monotonic_now() >= until) return text.error();
  }
}

void Channels::measure(State& op) {
  double bits = 0;
  for (const RankPlan::Buffer& buffer : op.plan->buffers()) {
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

Status Channels::make_engines(Time until) {
  for (std::size_t number = engines_.size(); number < word_.count; ++number) {
    const auto on_broken = [self = weak_from_this()](const std::string& why) {
      if (const auto alive = self.lock()) alive->broken(why);
    };
    THALWEG_TRY(std::shared_ptr<Engine> engine, options_.make_engine(number, on_broken, until));
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) engine->abandon(broken_);
    engines_.push_back(std::move(engine));
  }
  return ok_status();
}

void Channels::divide(const std::shared_ptr<State>& op, std::size_t count) {
  op->host = shared_from_this();
  op->parts_left = count;
  for (std::size_t i = 0; i < count; ++i) {
    auto part = std::make_shared<State>();
    part->host = engines_[op->dlcp ? 0 : i];
    part->text = fmt::format("{}, part {} of {}", op->text, i + 1, count);
    // Ranks that divide it otherwise must find out.
    part->signature = op->signature ^ (std::uint64_t{count} << 32 | i);
    part->plan = std::make_shared<const RankPlan>(op->plan->part(i, count));
    part->type = op->type;
    part->op = op->op;
    part->part_step = op->part_step;
    part->priority = op->priority;
    part->awaited = op->awaited && i == 0;
    part->limit = op->limit;
    part->dlcp = op->dlcp;
    part->dlcp_peers = op->dlcp_peers;
    for (std::size_t b = 0; b < op->memory.size(); ++b) {
      const std::size_t whole = op->plan->buffers()[b].bytes;
      part->memory.push_back(op->memory[b] + RankPlan::part_begin(whole, i, count));
    }
    part->on_over = [self = shared_from_this(), op] { self->part_over(*op); };
    op->parts.push_back(std::move(part));
  }
}

// With the lock of the part's engine.
void Channels::part_over(State& op) {
  if (--op.parts_left > 0) return;
  const bool good =
      std::ranges::all_of(op.parts, [](const auto& part) { return part->result->ok(); });
  if (good && op.last_step) op.last_step();
  const std::lock_guard lock(mutex_);
  const std::string why = broken_.empty() ? "this rank has left" : broken_;
  op.end(good ? ok_status() : Status(Error(fmt::format("{}: {}", op.text, why))));
  changed_.notify_all();
}

Status Channels::wait(State& op) {
  // How it ended, all of them together say.
  for (const auto& part : op.parts) static_cast<void>(part->host->wait(*part));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool Channels::over(const State& op) {
  const std::lock_guard lock(mutex_);
  return op.result.has_value();
}

void Channels::broken(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) return;
  broken_ = why;
  for (const auto& engine : engines_) engine->abandon(why);
}

void Channels::leave() {
  const std::lock_guard order(order_);
  for (const auto& engine : engines_) engine->leave();
}

int usual_channels(int local_ranks) {
  constexpr int kMost = 4;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int mine = CPU_COUNT(&allowed);
  // A process that may use some of the cores only has those to itself.
  const bool bound = mine < get_nprocs_conf();
  return std::clamp(bound ? mine : mine / local_ranks, 1, kMost);
}

}  // namespace thalweg
