#include "nccl/connection.h"

#include <fmt/core.h>

#include <utility>

namespace thalweg::nccl {

void Connection::start() {
  if (options_.pool == nullptr) return;
  for (std::size_t i = 1; i < streams_.size(); ++i) options_.pool->next().attach(*streams_[i]);
}

void Connection::stop() {
  for (const auto& stream : streams_) {
    if (stream->worker() != nullptr) stream->worker()->detach(*stream);
  }
}

void Connection::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

Error Connection::failure() {
  const std::lock_guard lock(mutex_);
  return *failure_;
}

Request* Connection::next_request() {
  Request& request = slot(posted_);
  if (request.posted) return nullptr;
  request.connection = this;
  request.message = posted_++;
  request.begun = 0;
  request.posted = true;
  request.sized = false;
  request.inlined = false;
  return &request;
}

void Connection::drive() {
  for (const auto& stream : streams_) {
    if (stream->worker() == nullptr && !failed()) stream->advance();
  }
}

Result<bool> Connection::test(Request& request, std::size_t& size) {
  if (request.left.load(std::memory_order_acquire) != 0) drive();
  if (request.left.load(std::memory_order_acquire) == 0) {
    size = request.size;
    const std::lock_guard lock(mutex_);
    request.posted = false;
    return true;
  }
  if (failed()) return failure();
  return false;
}

}  // namespace thalweg::nccl
