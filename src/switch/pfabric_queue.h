// The queue of a pFabric port (Alizadeh et al., SIGCOMM 2013, §4.1).
//
// A packet's rank is the bytes its flow still had to send. The port serves the flow that owns the
// packet of the smallest rank, and of that flow the packet that came first, so that a flow is not
// reordered by its own falling ranks. When the buffer is full, the packet of the largest rank is
// dropped; among equals the newest, and the arriving packet counts as the newest of all.
//
// Packets are kept by flow, in order of arrival. Each flow remembers its smallest and its largest
// rank; a removal forgets the one it took away, and the next question finds it again. Ranks of a
// flow fall as it sends, so serving its first packet takes its largest rank and leaves the smallest
// in place: the common path looks at one number a flow.
//
// Invariants:
// 1. Every list in flows_ holds at least one packet; the flows of two lists differ.
// 2. Within a list, arrival numbers rise from head to tail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "switch/entry.h"

namespace thalweg {

class PFabricQueue {
 public:
  [[nodiscard]] bool empty() const { return flows_.empty(); }
  [[nodiscard]] std::size_t size() const { return size_; }

  void push(const QueueEntry& entry);
  // Requires a queue that is not empty.
  QueueEntry pop();
  // Takes out the packet to drop for an arrival of this rank. False if none waiting is worse: then
  // the arrival itself is the one to drop.
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
    std::uint32_t best = kNone;   // smallest rank, ties oldest; kNone: not known
    std::uint32_t worst = kNone;  // largest rank, ties newest; kNone: not known
  };

  std::uint32_t take_node();
  FlowList& list_of(std::uint32_t flow);
  void find_best(FlowList& list) const;
  void find_worst(FlowList& list) const;
  QueueEntry remove(std::size_t list_index, std::uint32_t node);
  [[nodiscard]] bool better(std::uint32_t a, std::uint32_t b) const;

  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;  // linked by Node::next
  std::vector<FlowList> flows_;
  std::uint64_t arrivals_ = 0;
  std::size_t size_ = 0;
};

}  // namespace thalweg
