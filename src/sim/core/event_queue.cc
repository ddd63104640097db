#include "sim/core/event_queue.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace thalweg::sim {
namespace {

constexpr std::size_t kArity = 4;

// Buckets hold a handful of events, where insertion sort beats std::sort.
constexpr std::size_t kInsertionSortLimit = 24;

void sort_events(std::vector<Event>& events) {
  if (events.size() > kInsertionSortLimit) {
    std::sort(events.begin(), events.end(),
              [](const Event& a, const Event& b) { return a.before(b); });
    return;
  }
  for (std::size_t i = 1; i < events.size(); ++i) {
    const Event event = events[i];
    std::size_t hole = i;
    for (; hole > 0 && event.before(events[hole - 1]); --hole) events[hole] = events[hole - 1];
    events[hole] = event;
  }
}

}  // namespace

void EventHeap::push(const Event& event) {
  std::size_t hole = events_.size();
  events_.push_back(event);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / kArity;
    if (!event.before(events_[parent])) break;
    events_[hole] = events_[parent];
    hole = parent;
  }
  events_[hole] = event;
}

void EventHeap::pop() {
  const Event last = events_.back();
  events_.pop_back();
  const std::size_t size = events_.size();
  if (size == 0) return;
  std::size_t hole = 0;
  while (true) {
    const std::size_t first = hole * kArity + 1;
    if (first >= size) break;
    const std::size_t end = std::min(first + kArity, size);
    std::size_t least = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (events_[child].before(events_[least])) least = child;
    }
    if (!events_[least].before(last)) break;
    events_[hole] = events_[least];
    hole = least;
  }
  events_[hole] = last;
}

EventQueue::EventQueue(Duration bucket) : heads_(kBuckets, kNone) {
  CHECK(bucket.ps() > 0);
  shift_ = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bucket.ps()))) - 1;
}

void EventQueue::advance_to(std::int64_t time_ps) {
  CHECK(time_ps >= now_ps_);
  now_ps_ = time_ps;
}

std::optional<Time> EventQueue::next_time() {
  if (next_ == current_.size() && soon_.empty() && !advance()) return std::nullopt;
  std::int64_t next_ps = std::numeric_limits<std::int64_t>::max();
  if (next_ < current_.size()) next_ps = current_[next_].time_ps;
  if (!soon_.empty()) next_ps = std::min(next_ps, soon_.top().time_ps);
  return Time::at(Duration::picoseconds(next_ps));
}

std::uint64_t EventQueue::next_wheel_bucket() const {
  if (on_wheel_ == 0) return kNever;
  const std::uint64_t first_slot = (current_bucket_ + 1) % kBuckets;
  const auto distance_to = [&](std::uint64_t word, std::uint64_t bits) {
    const std::uint64_t slot = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    return current_bucket_ + 1 + (slot - first_slot) % kBuckets;
  };
  std::uint64_t word = first_slot / 64;
  const std::uint64_t tail = ~std::uint64_t{0} << (first_slot % 64);
  if (const std::uint64_t bits = filled_[word] & tail; bits != 0) return distance_to(word, bits);
  for (std::uint64_t i = 0; i < kWords; ++i) {
    word = (word + 1) % kWords;
    if (filled_[word] != 0) return distance_to(word, filled_[word]);
  }
  return kNever;
}

void EventQueue::unload(std::uint64_t slot) {
  std::uint32_t node = heads_[slot];
  heads_[slot] = kNone;
  filled_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
  while (node != kNone) {
    current_.push_back(nodes_[node].event);
    const std::uint32_t next = nodes_[node].next;
    nodes_[node].next = free_;
    free_ = node;
    node = next;
    --on_wheel_;
  }
}

bool EventQueue::advance() {
  CHECK(pushed_ < kMostEvents, "more than {} events in one run", kMostEvents);
  current_.clear();
  next_ = 0;
  const std::uint64_t wheel = next_wheel_bucket();
  const std::uint64_t far = far_.empty() ? kNever : bucket_of(far_.top().time_ps);
  const std::uint64_t bucket = std::min(wheel, far);
  if (bucket == kNever) return false;
  current_bucket_ = bucket;
  if (wheel == bucket) unload(bucket % kBuckets);
  while (!far_.empty() && bucket_of(far_.top().time_ps) == bucket) {
    current_.push_back(far_.top());
    far_.pop();
  }
  sort_events(current_);
  return true;
}

}  // namespace thalweg::sim
