#include "net/store/store_table.h"

#include <algorithm>
#include <string_view>

#include "base/number.h"

namespace thalweg::net {
namespace {

using Outcome = StoreReply::Outcome;
using What = StoreRequest::What;

constexpr std::uint32_t kLongestWaitMs = 24 * 3600 * 1000;

}  // namespace

void StoreTable::on_request(Time now, Client client, StoreRequest request, Replies& out) {
  StoreReply reply;
  bool changed = false;
  bool waits = false;
  const std::string key = request.key;
  const std::uint32_t number = request.number;
  switch (request.what) {
    case What::kSet:
      changed = put(key, std::move(request.value));
      if (!changed) reply.outcome = Outcome::kFull;
      break;
    case What::kGet:
    case What::kWait:
      reply = wait(now, client, std::move(request), waits);
      break;
    case What::kAdd:
      reply = add(request);
      changed = reply.outcome == Outcome::kDone;
      break;
    case What::kCompareAndSet:
      reply = compare_and_set(request);
      changed = reply.outcome == Outcome::kDone;
      break;
    case What::kDelete:
      if (!erase(key)) reply.outcome = Outcome::kNotFound;
      break;
  }
  if (waits) return;
  reply.number = number;
  out.emplace_back(client, std::move(reply));
  if (changed) wake(key, out);
}

StoreReply StoreTable::add(const StoreRequest& request) {
  const auto found = values_.find(request.key);
  const std::optional<std::int64_t> old =
      found == values_.end() ? 0 : number_in<std::int64_t>(found->second);
  std::int64_t sum = 0;
  if (!old || __builtin_add_overflow(*old, request.delta, &sum)) return {Outcome::kNoNumber};
  StoreReply reply;
  reply.value = std::to_string(sum);
  if (!put(request.key, reply.value)) return {Outcome::kFull};
  return reply;
}

StoreReply StoreTable::compare_and_set(const StoreRequest& request) {
  const auto found = values_.find(request.key);
  const bool there = found != values_.end();
  if (there != request.expected.has_value() || (there && found->second != *request.expected)) {
    if (!there) return {Outcome::kNotFound};
    return {.outcome = Outcome::kDifferent, .number = 0, .value = found->second};
  }
  return {put(request.key, request.value) ? Outcome::kDone : Outcome::kFull};
}

bool StoreTable::put(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t old = is_new ? 0 : key.size() + found->second.size();
  const std::size_t bytes = bytes_ - old + key.size() + value.size();
  if (bytes > limits_.bytes || (is_new && values_.size() >= limits_.keys)) return false;
  bytes_ = bytes;
  if (is_new) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
  return true;
}

bool StoreTable::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

StoreReply StoreTable::wait(Time now, Client client, StoreRequest request, bool& waits) {
  if (const auto found = values_.find(request.key); found != values_.end()) {
    return {.value = request.what == What::kGet ? found->second : ""};
  }
  if (request.wait_ms == 0) return {Outcome::kNotFound};
  if (waiters_.size() >= limits_.waiting) return {Outcome::kFull};
  waits = true;
  const WaiterId id = next_waiter_++;
  const Time until = now + Duration::milliseconds(std::min(request.wait_ms, kLongestWaitMs));
  by_key_.emplace(request.key, id);
  by_client_.emplace(client, id);
  by_time_.emplace(until, id);
  waiters_.emplace(id, Waiter{client, std::move(request), until});
  return {};
}

void StoreTable::wake(const std::string& key, Replies& out) {
  const std::string& value = values_.find(key)->second;
  while (true) {
    const auto next = by_key_.lower_bound({key, 0});
    if (next == by_key_.end() || next->first != key) return;
    const auto waiter = waiters_.find(next->second);
    const StoreRequest& request = waiter->second.request;
    out.emplace_back(waiter->second.client,
                     StoreReply{.number = request.number,
                                .value = request.what == What::kGet ? value : std::string()});
    forget(waiter);
  }
}

void StoreTable::forget(std::map<WaiterId, Waiter>::iterator waiter) {
  const auto& [id, about] = *waiter;
  by_key_.erase({about.request.key, id});
  by_client_.erase({about.client, id});
  by_time_.erase({about.until, id});
  waiters_.erase(waiter);
}

void StoreTable::on_timeout(Time now, Replies& out) {
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    const auto waiter = waiters_.find(by_time_.begin()->second);
    out.emplace_back(waiter->second.client,
                     StoreReply{Outcome::kNotFound, waiter->second.request.number});
    forget(waiter);
  }
}

void StoreTable::on_gone(Client client) {
  while (true) {
    const auto next = by_client_.lower_bound({client, 0});
    if (next == by_client_.end() || next->first != client) return;
    forget(waiters_.find(next->second));
  }
}

std::optional<Time> StoreTable::next_timeout() const {
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

}  // namespace thalweg::net
