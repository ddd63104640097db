#include "nccl/worker.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <latch>
#include <mutex>
#include <utility>

#include "nccl/signals_blocked.h"
#include "net/io/system.h"

namespace thalweg::nccl {
void Stream::on_ready(int /*fd*/, std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  worker_->queue(*this);
}

Result<std::unique_ptr<Worker>> Worker::start(Duration spin) {
  THALWEG_TRY(auto loop, net::EventLoop::make());
  std::unique_ptr<Worker> worker(new Worker(std::move(loop), spin));
  const SignalsBlocked blocked;
  worker->thread_ =
      std::thread([&self = *worker] { self.loop_->run([&self] { return self.turn(); }); });
  pthread_setname_np(worker->thread_.native_handle(), "thalweg-nccl");
  return worker;
}

Worker::~Worker() {
  if (!thread_.joinable()) return;
  loop_->stop();
  thread_.join();
}

void Worker::attach(Stream& stream) {
  stream.worker_ = this;
  loop_->post([this, &stream] {
    const Status added = loop_->add(stream.fd(), stream.events() | EPOLLRDHUP | EPOLLET, stream);
    if (!added.ok()) stream.on_refused(added.error());
    queue(stream);
  });
}

void Worker::detach(Stream& stream) {
  std::latch gone(1);
  loop_->post([this, &stream, &gone] {
    loop_->remove(stream.fd());
    std::erase(ready_, &stream);
    gone.count_down();
  });
  gone.wait();
}

void Worker::wake(Stream& stream) {
  // The stream outlives this: it is detached by a later post.
  loop_->post([&stream] { stream.worker_->queue(stream); });
}

void Worker::queue(Stream& stream) {
  if (std::exchange(stream.queued_, true)) return;
  ready_.push_back(&stream);
}

std::optional<Time> Worker::turn() {
  if (!ready_.empty()) {
    advanced_.swap(ready_);
    for (Stream* const stream : advanced_) {
      stream->queued_ = false;
      if (stream->advance() == Stream::Progress::kMore) queue(*stream);
    }
    advanced_.clear();
    if (spin_ > Duration()) last_work_ = net::monotonic_now();
    if (!ready_.empty()) return Time();
  }
  if (spin_ > Duration() && net::monotonic_now() - last_work_ < spin_) return Time();
  return std::nullopt;
}

Result<std::shared_ptr<WorkerPool>> WorkerPool::share(int count, Duration spin) {
  // Never destroyed: a process may end while NCCL still holds connections.
  static auto& mutex = *new std::mutex;
  static auto& current = *new std::weak_ptr<WorkerPool>;
  if (count == 0) return std::shared_ptr<WorkerPool>();
  const std::lock_guard lock(mutex);
  if (auto pool = current.lock()) return pool;
  auto pool = std::make_shared<WorkerPool>();
  for (int i = 0; i < count; ++i) {
    THALWEG_TRY(auto worker, Worker::start(spin));
    pool->workers_.push_back(std::move(worker));
  }
  current = pool;
  return pool;
}

}  // namespace thalweg::nccl
