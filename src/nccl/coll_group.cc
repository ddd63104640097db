#include "nccl/coll_group.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "nccl/log.h"
#include "net/io/system.h"

namespace thalweg::nccl {
namespace {

// How often a rank says how far it is, while it has something to say.
constexpr Duration kReportEvery = Duration::milliseconds(20);
// How long close() waits for ranks whose sums were lost and which ask this rank's server again.
constexpr auto kStay = std::chrono::seconds(5);
// NCCL knows no deadline: a rank may be late by as much as the program lets it. As long as a server
// waits (net/atp/server_driver.cc).
constexpr Duration kCallLimit = Duration::milliseconds(3'600'000);

bool overlap(const CollRequest& request, const CollMemory& memory) {
  return request.data < memory.data + memory.size && memory.data < request.data + request.bytes;
}

}  // namespace

CollGroup::CollGroup(CollParts parts, std::unique_ptr<net::EventLoop> loop)
    : loop_(std::move(loop)), parts_(std::move(parts)), roster_(parts_.rank, parts_.ranks) {
  for (const CollMessage& message : parts_.early) roster_.on_message(0, message);
  if (!parts_.early.empty()) report_at_ = Time();
}

Result<std::unique_ptr<CollGroup>> CollGroup::start(CollParts parts) {
  THALWEG_TRY(auto loop, net::EventLoop::make());
  std::unique_ptr<CollGroup> group(new CollGroup(std::move(parts), std::move(loop)));
  for (CollLine& line : group->parts_.lines) {
    if (line.open()) {
      THALWEG_TRY_STATUS(group->loop_->add(line.fd(), EPOLLIN | EPOLLRDHUP, *group));
    }
  }
  group->thread_ =
      std::thread([&self = *group] { self.loop_->run([&self] { return self.turn(); }); });
  pthread_setname_np(group->thread_.native_handle(), "thalweg-nccl");
  return group;
}

CollRequest* CollGroup::free_request() {
  const auto found = std::ranges::find_if(requests_, [](const CollRequest& request) {
    return request.state.load(std::memory_order_acquire) == CollRequest::State::kFree;
  });
  return found == requests_.end() ? nullptr : &*found;
}

Result<CollRequest*> CollGroup::allreduce(void* send, void* receive, std::size_t count,
                                          DType type) {
  CollRequest* const request = free_request();
  {
    const std::lock_guard lock(mutex_);
    if (roster_.failure()) return *roster_.failure();
    if (request == nullptr) return request;
    // The node gets the calls in the order in which they are counted.
    roster_.on_call(static_cast<std::uint64_t>(count) << 8 | static_cast<std::uint64_t>(type));
    note_change();
    if (roster_.failure()) return *roster_.failure();
    ++running_;
  }
  request->group = this;
  request->data = static_cast<std::byte*>(receive);
  request->bytes = count * size_of(type);
  request->error.reset();
  request->state.store(CollRequest::State::kRunning, std::memory_order_release);
  if (send != receive && request->bytes > 0) {
    std::memcpy(receive, send, request->bytes);
    std::memset(send, 0, request->bytes);
  }
  begin(*request, type, count);
  return request;
}

void CollGroup::begin(CollRequest& request, DType type, std::size_t count) {
  if (count == 0) {
    end(request, ok_status());
    return;
  }
  const bool given = parts_.node->reduce(
      {.type = type,
       .data = request.data,
       .elements = static_cast<std::int64_t>(count),
       .purpose = static_cast<std::uint8_t>(ReduceOp::kSum),
       .deadline = kCallLimit,
       .done = [this, &request, type, count](const Status& status) {
         end(request, status.ok() ? status
                                  : Status(status.error().within(fmt::format(
                                        "CollNet: allreduce of {} {}", count, name_of(type)))));
       }});
  if (!given) end(request, Error(ErrorCode::kCancelled, "CollNet: the communicator is closed"));
}

// In the node's thread.
void CollGroup::end(CollRequest& request, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      roster_.on_call_finished();
    } else {
      request.error = status.error();
      roster_.fail(status.error());
    }
    request.state.store(status.ok() ? CollRequest::State::kDone : CollRequest::State::kFailed,
                        std::memory_order_release);
    --running_;
    note_change();
    // Under the lock: once running_ is 0, close() may end this object.
    changed_.notify_all();
  }
}

Result<bool> CollGroup::test(CollRequest& request, std::size_t& bytes) {
  switch (request.state.load(std::memory_order_acquire)) {
    case CollRequest::State::kRunning:
      return false;
    case CollRequest::State::kDone:
      bytes = request.bytes;
      request.state.store(CollRequest::State::kFree, std::memory_order_release);
      return true;
    case CollRequest::State::kFailed:
      return *request.error;
    case CollRequest::State::kFree:
      break;
  }
  return Error(ErrorCode::kInternal, "CollNet: NCCL asks about a request that is over");
}

void CollGroup::deregister_memory(const CollMemory& memory) {
  const bool used = std::ranges::any_of(requests_, [&](const CollRequest& request) {
    return request.state.load(std::memory_order_acquire) == CollRequest::State::kRunning &&
           overlap(request, memory);
  });
  if (used) abandon();
}

void CollGroup::abandon() {
  const Error left(ErrorCode::kCancelled,
                   fmt::format("rank {} has given up the CollNet communicator", parts_.rank));
  parts_.node->fail(left);
  std::unique_lock lock(mutex_);
  roster_.fail(left);
  changed_.wait(lock, [this] { return running_ == 0; });
}

void CollGroup::note_change() {
  if (!std::exchange(noted_, true)) {
    loop_->post([this] { report_at_ = net::monotonic_now() + kReportEvery; });
  }
}

void CollGroup::close() {
  if (!thread_.joinable()) return;
  bool settled = false;
  {
    std::unique_lock lock(mutex_);
    if (running_ == 0 && !roster_.failure()) {
      loop_->post([this] { report_at_ = Time(); });
      settled = changed_.wait_for(lock, kStay, [this] {
        return roster_.failure() || roster_.rank0_left() ||
               roster_.everyone() >= roster_.own().posted;
      });
      settled = settled && !roster_.failure();
    }
  }
  if (settled) {
    loop_->post([this] { say_bye(); });
  } else {
    abandon();
  }
  loop_->stop();
  thread_.join();
  parts_.node.reset();
  parts_.leases.reset();
}

void CollGroup::on_ready(int fd, std::uint32_t /*events*/) {
  for (int rank = 0; rank < parts_.ranks; ++rank) {
    if (parts_.lines[static_cast<std::size_t>(rank)].fd() == fd) read(rank);
  }
  tell();
}

void CollGroup::read(int rank) {
  CollLine& line = parts_.lines[static_cast<std::size_t>(rank)];
  std::vector<CollMessage> messages;
  const Result<bool> open = line.read(messages);
  const std::lock_guard lock(mutex_);
  for (const CollMessage& message : messages) roster_.on_message(rank, message);
  if (!open.ok()) roster_.fail(open.error());
  if (open.ok() && *open) return;
  roster_.on_lost(rank, line.peer());
  loop_->remove(line.fd());
  line.close();
}

std::optional<Time> CollGroup::turn() {
  const Time now = net::monotonic_now();
  if (report_at_ && *report_at_ <= now) {
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      const CollReport& own = roster_.own();
      more = own != told_ || own.posted > own.finished;
      noted_ = more;
      told_ = own;
    }
    report_at_ = more ? std::optional(now + kReportEvery) : std::nullopt;
    if (more && parts_.rank != 0 && parts_.lines[0].open()) parts_.lines[0].send(told_);
    tell();
  }
  for (CollLine& line : parts_.lines) {
    // What a socket did not take waits for the next report.
    if (line.open() && !line.flush() && !report_at_) report_at_ = now + kReportEvery;
  }
  return report_at_;
}

void CollGroup::tell() {
  std::optional<Error> failure;
  std::uint64_t everyone = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!told_failure_) failure = roster_.failure();
    everyone = roster_.everyone();
    changed_.notify_all();
  }
  if (failure) {
    told_failure_ = true;
    parts_.node->fail(*failure);
  }
  if (parts_.rank != 0) {
    // Rank 0 sees that this rank is lost, and tells the others.
    if (failure && parts_.lines[0].open()) {
      loop_->remove(parts_.lines[0].fd());
      parts_.lines[0].close();
    }
    return;
  }
  for (CollLine& line : parts_.lines) {
    if (!line.open()) continue;
    if (everyone > told_everyone_) line.send(CollFinished{everyone});
    if (failure) line.send(CollFailure{failure->code(), failure->message()});
  }
  told_everyone_ = everyone;
}

void CollGroup::say_bye() {
  CollBye bye;
  {
    const std::lock_guard lock(mutex_);
    bye.finished = roster_.own().finished;
  }
  for (CollLine& line : parts_.lines) {
    if (line.open()) line.send(bye);
  }
}

}  // namespace thalweg::nccl
