#include "switch/queueing/pfabric_queue.h"

#include "base/check.h"

namespace thalweg::switches {

// A total order: the smaller rank first, then the older packet. The first packet in this order is
// served first, and the last is dropped first.
bool PFabricQueue::better(std::uint32_t a, std::uint32_t b) const {
  const Node& x = nodes_[a];
  const Node& y = nodes_[b];
  return x.entry.rank != y.entry.rank ? x.entry.rank < y.entry.rank : x.arrival < y.arrival;
}

std::uint32_t PFabricQueue::take_node() {
  if (free_ == kNone) {
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = free_;
  free_ = nodes_[node].next;
  return node;
}

PFabricQueue::FlowList& PFabricQueue::list_of(std::uint32_t flow) {
  for (FlowList& list : flows_) {
    if (list.flow == flow) return list;
  }
  flows_.push_back({flow, kNone, kNone, kNone, kNone});
  return flows_.back();
}

void PFabricQueue::push(const QueueEntry& entry) {
  const std::uint32_t node = take_node();
  FlowList& list = list_of(entry.flow);
  nodes_[node] = {entry, arrivals_++, list.tail, kNone};
  ++size_;
  if (list.head == kNone) {
    list.head = list.tail = list.best = list.worst = node;
    return;
  }
  nodes_[list.tail].next = node;
  list.tail = node;
  if (list.best != kNone && better(node, list.best)) list.best = node;
  if (list.worst != kNone && better(list.worst, node)) list.worst = node;
}

void PFabricQueue::find_best(FlowList& list) const {
  list.best = list.head;
  for (std::uint32_t n = nodes_[list.head].next; n != kNone; n = nodes_[n].next) {
    if (better(n, list.best)) list.best = n;
  }
}

void PFabricQueue::find_worst(FlowList& list) const {
  list.worst = list.head;
  for (std::uint32_t n = nodes_[list.head].next; n != kNone; n = nodes_[n].next) {
    if (better(list.worst, n)) list.worst = n;
  }
}

QueueEntry PFabricQueue::remove(std::size_t list_index, std::uint32_t node) {
  FlowList& list = flows_[list_index];
  const Node taken = nodes_[node];
  (taken.previous == kNone ? list.head : nodes_[taken.previous].next) = taken.next;
  (taken.next == kNone ? list.tail : nodes_[taken.next].previous) = taken.previous;
  if (list.best == node) list.best = kNone;
  if (list.worst == node) list.worst = kNone;
  nodes_[node].next = free_;
  free_ = node;
  --size_;
  if (list.head == kNone) {
    flows_[list_index] = flows_.back();
    flows_.pop_back();
  }
  return taken.entry;
}

QueueEntry PFabricQueue::pop() {
  CHECK(!empty());
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i].best == kNone) find_best(flows_[i]);
    if (better(flows_[i].best, flows_[chosen].best)) chosen = i;
  }
  return remove(chosen, flows_[chosen].head);
}

bool PFabricQueue::evict_worse_than(std::uint32_t rank, QueueEntry& victim) {
  if (empty()) return false;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i].worst == kNone) find_worst(flows_[i]);
    if (better(flows_[chosen].worst, flows_[i].worst)) chosen = i;
  }
  const std::uint32_t worst = flows_[chosen].worst;
  if (nodes_[worst].entry.rank <= rank) return false;
  victim = remove(chosen, worst);
  return true;
}

}  // namespace thalweg::switches
