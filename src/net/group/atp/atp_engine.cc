#include "net/group/atp/atp_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "net/atp/member.h"
#include "net/auth/atp_key.h"
#include "net/io/control_connection.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How long rank 0 waits for the others to read that the switch refused.
constexpr Duration kRefusalTime = Duration::milliseconds(2'000);
// How long a server stays for ranks that have not published that they are done.
constexpr Duration kStayTime = Duration::milliseconds(5'000);
constexpr Duration kStayTurn = Duration::milliseconds(50);
// How long a rank looks for a job that rank 0 has told.
constexpr Duration kFindJobTime = Duration::milliseconds(10'000);
// How often the engine checks whether the communicator is broken.
constexpr auto kLook = std::chrono::milliseconds(50);

// A rank that waits for a sum in vain knows at this time before the deadline, so that all can find
// out by then whether one of them hangs.
Duration before_limit(Duration limit) { return std::min(limit / 8, Duration::milliseconds(500)); }
// By then ranks have had this long to answer.
Duration roll_time(Duration limit) { return std::min(limit / 4, Duration::milliseconds(1'000)); }
// How often a rank looks whether it was told who hangs, and how long one that was stopped reads
// what the others have said.
constexpr auto kTurn = std::chrono::milliseconds(20);
constexpr Duration kReadTime = Duration::milliseconds(1'000);

// The address in what a rank published: "host:port" and, after a space, the rank's host in the
// topology.
std::string address_in(const std::string& member) { return member.substr(0, member.find(' ')); }

// The address of each rank, as rank 0 told it.
Result<std::vector<std::string>> members_in(const nlohmann::json& fields, int size) {
  const nlohmann::json members = fields.value("members", nlohmann::json::array());
  const bool texts = members.is_array() && std::ranges::all_of(members, [](const auto& member) {
                       return member.is_string();
                     });
  if (!texts || members.size() != static_cast<std::size_t>(size)) {
    return Error(ErrorCode::kInternal,
                 fmt::format("members: rank 0 did not tell the addresses of {} ranks", size));
  }
  return members.get<std::vector<std::string>>();
}

// Comparisons carry the number of rank 0's newest job, as the largest of the ranks' numbers.
void set_told(PlannedOperation& comparison, std::uint32_t job) {
  const auto number = static_cast<std::int32_t>(job);
  CHECK(comparison.scratch.size() == sizeof(number));
  std::memcpy(comparison.scratch.data(), &number, sizeof(number));
}
std::uint32_t told_in(const PlannedOperation& comparison) {
  std::int32_t number = 0;
  std::memcpy(&number, comparison.scratch.data(), sizeof(number));
  return static_cast<std::uint32_t>(number);
}

}  // namespace

Result<std::shared_ptr<AtpEngine>> AtpEngine::make(AtpEngineOptions options, Time until) {
  std::shared_ptr<AtpEngine> engine(new AtpEngine(std::move(options)));
  const Result<bool> made = engine->set_up(until);
  if (!made.ok()) return made.error().within("transport atp");
  if (!*made) return std::shared_ptr<AtpEngine>();
  engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  return engine;
}

Result<bool> AtpEngine::set_up(Time until) {
  THALWEG_TRY(node_, AtpNode::bind(options_.local));
  THALWEG_TRY_STATUS(options_.publish(fmt::format("member/{}", options_.rank),
                                      node_->address().unmapped().to_string() + " " + options_.host,
                                      until));
  // Rank 0 asks for the address of each rank, and tells all of them in one word.
  if (options_.rank == 0) {
    std::vector<std::string> all;
    for (int r = 0; r < options_.size; ++r) {
      THALWEG_TRY(std::string member, options_.find(fmt::format("member/{}", r), until));
      all.push_back(std::move(member));
    }
    const Result<AtpJob> job = admit(all, until);
    nlohmann::json told = job.ok() ? to_json(*job) : refusal_of(job.error());
    std::ranges::transform(all, all.begin(), address_in);
    if (job.ok()) told["members"] = all;
    THALWEG_TRY_STATUS(options_.publish("job", told.dump(), until));
  }
  THALWEG_TRY(const std::string text, options_.find("job", until));
  THALWEG_TRY(const nlohmann::json fields, parse_control_line(text));
  if (fields.contains("error")) {
    if (options_.only_with_switch) return false;
    // A switch refuses the job. All ranks return its error.
    meet("refused", std::min(until, monotonic_now() + kRefusalTime));
    return refusal_in(fields);
  }
  THALWEG_TRY(const AtpJob job, atp_job_from(fields));
  THALWEG_TRY(members_, members_in(fields, options_.size));
  has_switch_ = !job.grant.data.empty();
  if (options_.only_with_switch && !has_switch_) return false;
  THALWEG_TRY(const AtpNodeOptions node, node_options(job));
  elements_ = node.elements;
  succession_.emplace(std::int64_t{node.window} * node.elements);
  options_.servers = node.servers;
  is_server_ = node.rank < node.servers;
  levels_ =
      std::ranges::adjacent_find(job.switches, std::not_equal_to()) == job.switches.end() ? 1 : 2;
  THALWEG_TRY_STATUS(node_->join(node));
  return true;
}

Result<AtpNodeOptions> AtpEngine::node_options(const AtpJob& job) const {
  std::vector<std::string> ordered;
  AtpNodeOptions node;
  node.rank = options_.rank;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t rank = i < job.order.size() ? job.order[i] : i;
    if (rank >= members_.size()) return Error(fmt::format("the job has no rank {}", rank));
    if (rank == static_cast<std::size_t>(options_.rank)) node.rank = static_cast<int>(i);
    ordered.push_back(members_[rank]);
  }
  THALWEG_TRY(node.members, numeric_addresses(ordered));
  THALWEG_TRY(node.shards, numeric_addresses(job.grant.data));
  node.job = job.grant.id;
  node.servers = static_cast<int>(job.servers);
  node.elements = job.grant.elements;
  node.checks = job.checks;
  node.own_sums = job.own_sums;
  if (job.salt.has_value() != options_.job_key.has_value()) {
    return Error(
        fmt::format("rank {} and rank 0: one has a job key and the other has none", options_.rank));
  }
  if (options_.job_key) node.key = atp_key(*options_.job_key, *job.salt);
  if (job.groups.empty()) return node;
  node.groups.assign(job.groups.begin(), job.groups.end());
  if (node.shards.empty()) return node;
  node.switch_paths = job.paths;
  node.server_shards = node.shards;
  THALWEG_TRY(node.shards, numeric_addresses({job.switches[atp_place(node).group]}));
  if (node.shards == node.server_shards) node.server_shards.clear();
  return node;
}

Status AtpEngine::join_next(std::uint32_t number) {
  joined_ = number;  // also if it fails: there is one attempt
  THALWEG_TRY(const std::string text,
              options_.find(fmt::format("job/{}", number), monotonic_now() + kFindJobTime));
  THALWEG_TRY(const nlohmann::json fields, parse_control_line(text));
  THALWEG_TRY(const AtpJob job, atp_job_from(fields));
  THALWEG_TRY(const AtpNodeOptions node, node_options(job));
  THALWEG_TRY_STATUS(node_->join_next(node));
  if (node.rank < node.servers) is_server_ = true;
  has_switch_ = !node.shards.empty();
  return ok_status();
}

// Rank 0 waits for the others because the store may run in its process.
void AtpEngine::meet(const std::string& where, Time until) const {
  const auto key = [&](int rank) { return fmt::format("{}/{}", where, rank); };
  if (!options_.publish(key(options_.rank), "1", until).ok() || options_.rank != 0) return;
  for (int r = 0; r < options_.size; ++r) {
    if (!options_.find(key(r), until).ok()) return;
  }
}

void AtpEngine::start(const std::shared_ptr<AtpOperation>& op,
                      const std::shared_ptr<PlannedOperation>& comparison,
                      const std::function<void()>& compare) {
  const auto entry = std::make_shared<Entry>(
      Entry{.op = op, .comparison = comparison, .limit = monotonic_now() + op->limit});
  entry->roll_at = entry->limit - before_limit(op->limit) - roll_time(op->limit);
  if (options_.rank == 0) set_told(*comparison, told_);
  bool given = false;
  {
    const std::lock_guard lock(mutex_);
    given = !leaving_;
    if (given) {
      entry->number = succession_->call(op->elements);
      waiting_.push_back(entry);
      ++in_flight_;
      rolls_.insert(entry->roll_at);
      give();
    }
  }
  // Nobody else has seen the operation yet.
  if (!given) op->end(has_left().within(op->text));
  compare();
  if (!given) return;
  const std::lock_guard lock(mutex_);
  entry->compares = true;
  pass_on(entry);
  changed_.notify_all();  // the thread watches operations in flight
}

void AtpEngine::give() {
  while (!waiting_.empty()) {
    const std::optional<std::uint32_t> job = leaving_ ? job_ : succession_->next();
    if (!job) return;
    if (std::exchange(job_, *job) != *job) node_->use_next();
    const std::shared_ptr<Entry> entry = std::move(waiting_.front());
    waiting_.pop_front();
    give(entry);
  }
}

void AtpEngine::give(const std::shared_ptr<Entry>& entry) {
  const AtpOperation& op = *entry->op;
  AtpReduction reduction;
  reduction.type = op.type;
  reduction.data = op.tensor;
  reduction.elements = op.elements;
  reduction.purpose = static_cast<std::uint8_t>(op.op);
  reduction.deadline =
      std::max(entry->limit - before_limit(op.limit) - monotonic_now(), Duration::milliseconds(1));
  reduction.done = [this, entry](Status status) {
    const std::lock_guard lock(mutex_);
    entry->sum = std::move(status);
    pass_on(entry);
  };
  if (node_->reduce(std::move(reduction))) return;
  entry->sum = has_left();
  pass_on(entry);
}

void AtpEngine::pass_on(const std::shared_ptr<Entry>& entry) {
  if (!entry->compares || !entry->sum) return;
  ended_.push_back(entry);
  changed_.notify_all();
}

std::uint64_t AtpEngine::corrupt() {
  const std::lock_guard lock(asking_);
  return node_ ? node_->counters().corrupt : corrupt_;
}

Status AtpEngine::wait(Operation::State& op) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool AtpEngine::over(const Operation::State& op) {
  const std::lock_guard lock(mutex_);
  return op.result.has_value();
}

void AtpEngine::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto due = [&] { return !ended_.empty() || (leaving_ && in_flight_ == 0); };
    const auto watches = [&] { return in_flight_ > 0 && !failed_; };
    if (!watches()) {
      changed_.wait(lock, [&] { return due() || watches(); });
      if (!due()) continue;
    } else if (!changed_.wait_for(lock, kLook, due)) {
      lock.unlock();
      const std::optional<Error> cause = options_.broken();
      if (cause) node_->fail(*cause);
      lock.lock();
      failed_ = cause.has_value();
      call_roll(lock);
      continue;
    }
    if (ended_.empty()) return;
    const std::shared_ptr<Entry> entry = std::move(ended_.front());
    ended_.pop_front();
    --in_flight_;
    rolls_.erase(rolls_.find(entry->roll_at));
    lock.unlock();
    finish(*entry);
    lock.lock();
  }
}

void AtpEngine::call_roll(std::unique_lock<std::mutex>& lock) {
  if (failed_ || rolls_.empty() || rolled_for_ == *rolls_.begin()) return;
  if (monotonic_now() < *rolls_.begin()) return;
  rolled_for_ = *rolls_.begin();
  lock.unlock();
  options_.call_roll();
  lock.lock();
}

void AtpEngine::find_culprit(const Entry& entry) {
  if (std::exchange(looked_for_culprit_, true)) return;  // all operations ended with the first
  // A rank that comes late was stopped itself. The others say so, and it must read that first.
  const Duration before = before_limit(entry.op->limit);
  const bool is_late = monotonic_now() > entry.limit - before / 2;
  const Time until = is_late ? monotonic_now() + kReadTime : entry.limit;
  const Time first_look = is_late ? until : until - before / 2;
  bool looked = false;
  while (monotonic_now() < until) {
    if (options_.broken()) return;
    if (!looked && monotonic_now() >= first_look) {
      looked = true;
      options_.fail_missing(entry.op->limit_in_words());
      options_.call_roll();  // a rank may have stopped since it answered
    }
    std::this_thread::sleep_for(kTurn);
  }
  options_.fail_missing(entry.op->limit_in_words());
}

// If the sum is there, all ranks have made the call, so the comparison ends soon; otherwise at its
// deadline at the latest. It knows better why there is no sum.
void AtpEngine::finish(const Entry& entry) {
  AtpOperation& op = *entry.op;
  const Status compared = entry.comparison->host->wait(*entry.comparison);
  Status status = compared;
  if (compared.ok() && !entry.sum->ok()) {
    const Error& why = entry.sum->error();
    if (why.code() == ErrorCode::kTimeout && !why.rank()) find_culprit(entry);
    status = options_.broken().value_or(why).within(op.text);  // all ranks have that one's words
  }
  if (status.ok() && op.last_step) op.last_step();
  std::optional<std::uint32_t> told;
  if (compared.ok()) told = told_in(*entry.comparison);
  if (told.value_or(0) > joined_) {
    // Operations of the next job fail, and with them the job on all ranks, at their deadlines.
    const Status joined = join_next(*told);
    if (!joined.ok()) node_->fail(joined.error().within("the change to a job at more switches"));
  }
  {
    const std::lock_guard lock(mutex_);
    const bool changing = !succession_->settled();
    succession_->over(entry.number, told, status.ok());
    if (changing && succession_->settled()) {
      node_->leave_earlier();
      if (leases_) leases_->end_earlier();
    }
    give();
    op.end(status);
  }
  changed_.notify_all();
}

void AtpEngine::settle() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, true)) return;
    if (in_flight_ > 0) return;
  }
  if (thread_.joinable()) wait_for_others();
}

void AtpEngine::leave() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    if (std::exchange(left_, true)) return;
  }
  if (!thread_.joinable()) return;
  node_->fail(has_left());
  {
    const std::lock_guard lock(mutex_);
    give();
  }
  changed_.notify_all();
  thread_.join();
  leases_.reset();  // its thread may make a job for this object
  {
    const std::lock_guard lock(asking_);
    corrupt_ = node_->counters().corrupt;
    node_.reset();
  }
}

// Stays for ranks whose last sum was lost and which ask a server for it again.
void AtpEngine::wait_for_others() {
  const Time until = monotonic_now() + kStayTime;
  if (!options_.publish(fmt::format("done/{}", options_.rank), "1", until).ok()) return;
  if (!is_server_) return;
  for (int r = 0; r < options_.size;) {
    const Time turn = std::min(until, monotonic_now() + kStayTurn);
    if (options_.find(fmt::format("done/{}", r), turn).ok()) {
      ++r;
      continue;
    }
    // The store failed well before the limit: it is gone, and with it the ranks to wait for.
    const bool gone = monotonic_now() + kStayTurn / 2 < turn;
    if (gone || monotonic_now() >= until || options_.broken()) return;
  }
}

}  // namespace thalweg::net
