#include "net/collective/atp_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/atp/admission.h"
#include "net/system.h"

namespace thalweg {
namespace {

// How long rank 0 waits for the others to read that the switch refused.
constexpr Duration kRefusalTime = Duration::milliseconds(2'000);
// How long a server stays for ranks that have not said that they are done.
constexpr Duration kStayTime = Duration::milliseconds(5'000);
constexpr Duration kStayTurn = Duration::milliseconds(50);
// How soon a broken communicator is noticed.
constexpr auto kLook = std::chrono::milliseconds(50);

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
  AtpNodeOptions node;
  THALWEG_TRY(node_, AtpNode::bind(options_.local));
  THALWEG_TRY_STATUS(options_.publish(fmt::format("member/{}", options_.rank),
                                      node_->address().unmapped().to_string(), until));
  std::vector<std::string> members;
  for (int r = 0; r < options_.size; ++r) {
    THALWEG_TRY(std::string member, options_.find(fmt::format("member/{}", r), until));
    members.push_back(std::move(member));
  }
  if (options_.rank == 0) {
    const Result<AtpJob> job = admit(members, until);
    const nlohmann::json told =
        job.ok() ? to_json(*job) : nlohmann::json{{"error", job.error().message()}};
    THALWEG_TRY_STATUS(options_.publish("job", told.dump(), until));
  }
  THALWEG_TRY(const std::string text, options_.find("job", until));
  THALWEG_TRY(const nlohmann::json fields, parse_control_line(text));
  if (fields.contains("error")) {
    if (options_.only_with_switch) return false;
    // The switch is there and refuses: all ranks say so.
    meet("refused", std::min(until, monotonic_now() + kRefusalTime));
    return Error(fields.value("error", ""));
  }
  THALWEG_TRY(const AtpJob job, atp_job_from(fields));
  if (options_.only_with_switch && job.grant.data.empty()) return false;
  THALWEG_TRY(node.members, numeric_addresses(members));
  THALWEG_TRY(node.shards, numeric_addresses(job.grant.data));
  elements_ = job.grant.elements;
  has_switch_ = !job.grant.data.empty();
  node.job = job.grant.id;
  node.rank = options_.rank;
  options_.servers = node.servers = static_cast<int>(job.servers);
  node.elements = elements_;
  if (!job.grant.key.empty()) {
    THALWEG_TRY(node.key, JobKey::from_hex(job.grant.key));
  }
  THALWEG_TRY_STATUS(node_->join(node));
  return true;
}

// The store may end with the rank that leaves first.
void AtpEngine::meet(const std::string& where, Time until) const {
  const auto key = [&](int rank) { return fmt::format("{}/{}", where, rank); };
  if (!options_.publish(key(options_.rank), "1", until).ok() || options_.rank != 0) return;
  for (int r = 0; r < options_.size; ++r) {
    if (!options_.find(key(r), until).ok()) return;
  }
}

Result<AtpJob> AtpEngine::admit(const std::vector<std::string>& members, Time until) {
  const int servers = options_.servers == 0 ? options_.size : options_.servers;
  JobRequest request;
  request.name = options_.name;
  request.workers = members;
  request.servers.assign(members.begin(), members.begin() + servers);
  request.window = AtpNodeOptions().window;
  THALWEG_TRY(AtpAdmission admission, admit_atp_job(options_.switch_address, options_.switch_token,
                                                    std::move(request), options_.elements, until));
  lease_ = std::move(admission.lease);
  return AtpJob{.grant = std::move(admission.grant),
                .servers = static_cast<std::uint32_t>(servers)};
}

void AtpEngine::start(const std::shared_ptr<Operation::State>& op,
                      const std::shared_ptr<Operation::State>& agreement) {
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) {
      op->end(Error(op->text + ": this rank has left"));
      return;
    }
    waiting_.push_back({op, agreement, monotonic_now() + op->limit});
  }
  changed_.notify_all();
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
    const auto due = [&] {
      return !waiting_.empty() || !ended_.empty() || (leaving_ && in_flight_ == 0);
    };
    if (in_flight_ == 0 || failed_) {
      changed_.wait(lock, due);
    } else if (!changed_.wait_for(lock, kLook, due)) {
      lock.unlock();
      const std::string cause = options_.broken();
      if (!cause.empty()) node_->fail(cause);
      lock.lock();
      failed_ = !cause.empty();
      continue;
    }
    if (!ended_.empty()) {
      Ended ended = std::move(ended_.front());
      ended_.pop_front();
      --in_flight_;
      lock.unlock();
      finish(ended.op, std::move(ended.status));
      lock.lock();
    } else if (!waiting_.empty()) {
      const Entry entry = std::move(waiting_.front());
      waiting_.pop_front();
      handing_over_ = true;
      lock.unlock();
      hand_over(entry);
      lock.lock();
      handing_over_ = false;
    } else {
      return;
    }
  }
}

void AtpEngine::hand_over(const Entry& entry) {
  const std::shared_ptr<Operation::State>& op = entry.op;
  if (const Status agreed = entry.agreement->host->wait(*entry.agreement); !agreed.ok()) {
    finish(op, agreed.error());
    return;
  }
  AtpReduction reduction;
  reduction.type = op->type;
  reduction.data = op->tensor;
  reduction.elements = op->elements;
  if (has_fixed_point(op->type)) {
    const auto* exponents = reinterpret_cast<const BlockExponent*>(op->scratch.data());
    reduction.exponents.assign(exponents, exponents + op->scratch.size());
  }
  reduction.deadline = std::max(Duration::milliseconds(1), entry.deadline - monotonic_now());
  reduction.done = [this, op](Status status) {
    {
      const std::lock_guard lock(mutex_);
      ended_.push_back({op, std::move(status)});
    }
    changed_.notify_all();
  };
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  node_->reduce(std::move(reduction));
}

void AtpEngine::finish(const std::shared_ptr<Operation::State>& op, Status status) {
  if (status.ok() && op->last_step) op->last_step();
  {
    const std::lock_guard lock(mutex_);
    op->end(status.ok() ? std::move(status) : Status(status.error().within(op->text)));
  }
  changed_.notify_all();
}

void AtpEngine::settle() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, true)) return;
    if (!waiting_.empty() || handing_over_ || in_flight_ > 0) return;
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
  node_->fail("this rank has left");
  changed_.notify_all();
  thread_.join();
  node_.reset();
  lease_.reset();
}

// A rank whose last sum was lost asks a server for it again.
void AtpEngine::wait_for_others() {
  const Time until = monotonic_now() + kStayTime;
  if (!options_.publish(fmt::format("done/{}", options_.rank), "1", until).ok()) return;
  if (options_.rank >= options_.servers) return;
  for (int r = 0; r < options_.size;) {
    const Time turn = std::min(until, monotonic_now() + kStayTurn);
    if (options_.find(fmt::format("done/{}", r), turn).ok()) {
      ++r;
      continue;
    }
    // Well before its time: there is no store any more, nor anybody to wait for.
    const bool gone = monotonic_now() + kStayTurn / 2 < turn;
    if (gone || monotonic_now() >= until || !options_.broken().empty()) return;
  }
}

}  // namespace thalweg
