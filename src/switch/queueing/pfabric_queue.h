// PFabricQueue: the queue of a pFabric port (Alizadeh et al., SIGCOMM 2013, §4.1).
//
// A packet's rank is the number of bytes that its flow still had to send. The port picks the flow
// that owns the packet of the smallest rank, and serves that flow's oldest packet, so that a flow
// is not reordered by its own falling ranks. When the buffer is full, the packet of the largest
// rank is dropped; among equals the newest, and the arriving packet counts as the newest of all.
//
// Packets are kept by flow, in order of arrival. Each flow remembers its packets of the smallest
// and the largest rank; removing one of them forgets it, and the next call that needs it searches
// for it. Ranks of a flow fall as it sends, so serving its first packet removes its largest rank
// and keeps the smallest: in the common case a call looks at one number per flow.
//
// Invariants:
// 1. Every list in flows_ holds at least one packet; the flows of two lists differ.
// 2. Within a list, arrival numbers rise from head to tail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "switch/queueing/entry.h"

namespace thalweg::switches {

class PFabricQueue {
 public:
  [[nodiscard]] bool empty() const { return flows_.empty(); }
  [[nodiscard]] std::size_t size() const { return size_; }

  void push(const QueueEntry& entry);
  // Requires a queue that is not empty.
  QueueEntry pop();
  // Removes the packet to drop for an arrival of this rank. Returns false if no waiting packet has
  // a larger rank: then the arrival itself must be dropped.
  bool evict_worse_than(std::uint32_t rank, QueueEntry& victim);

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Node {
    QueueEntry entry;
    std::uint64_t arrival = 0;
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
  };
  struct FlowList {
    std::uint32_t flow = 0;
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t best = kNone;   // smallest rank, the oldest among equals; kNone: not known
    std::uint32_t worst = kNone;  // largest rank, the newest among equals; kNone: not known
  };

  std::uint32_t take_node();
  FlowList& list_of(std::uint32_t flow);
  void find_best(FlowList& list) const;
  void find_worst(FlowList& list) const;
  QueueEntry remove(std::size_t list_index, std::uint32_t node);
  [[nodiscard]] bool better(std::uint32_t a, std::uint32_t b) const;

  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;  // the first unused node; linked by Node::next
  std::vector<FlowList> flows_;
  std::uint64_t arrivals_ = 0;
  std::size_t size_ = 0;
};

}  // namespace thalweg::switches
