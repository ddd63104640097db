// AtpSuccession: says at which operation all ranks of a communicator go from one ATP job to the
// next, which rank 0 has made because more switches can take part (net/atp/returns.h). No I/O.
//
// Rank 0 numbers its jobs from 0 on. When it calls an operation, it tells the number of its newest
// job, and the operation's comparison brings that number to all ranks. An operation belongs to the
// newest job that was told in an operation that it sees. It sees those that are kMostUnseen
// operations or more before it, and those that end a span of elements or more before it begins. All
// ranks call the same operations in the same order, so each operation belongs to the same job on
// all ranks.
//
// An operation waits until all that it sees are over. If a span is a window of packets, this costs
// nothing to operations of some packets: until then no packet of theirs could leave. Of operations
// of one packet, kMostUnseen are in flight where the window would allow more.
//
// Invariant: next() gives the operations out in the order of their calls, each once.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace thalweg::net {

class AtpSuccession {
 public:
  static constexpr std::uint64_t kMostUnseen = 64;

  explicit AtpSuccession(std::int64_t span) : span_(span) {}

  // The next operation was called. Returns its number.
  std::uint64_t call(std::int64_t elements);
  // The operation is over on this rank. Call it once for each. `told`: by rank 0; none: that is not
  // known, because the comparison failed. `whole`: its sum is there, so all ranks had begun it.
  void over(std::uint64_t number, std::optional<std::uint32_t> told, bool whole);
  // The job of the next operation. None: it must wait, or none was called.
  std::optional<std::uint32_t> next();
  // Whether every rank has ended all operations of the jobs before the last that next() returned.
  [[nodiscard]] bool settled() const { return settled_; }

 private:
  struct Called {
    std::int64_t begin = 0;  // elements of all operations before it
    std::int64_t end = 0;
    bool over = false;
    std::uint32_t told = 0;
  };
  [[nodiscard]] Called& at(std::uint64_t number) { return calls_[number - first_]; }
  [[nodiscard]] bool sees(std::uint64_t number, std::uint64_t earlier, std::int64_t end) {
    return number >= earlier + kMostUnseen || at(number).begin >= end + span_;
  }

  std::int64_t span_;
  std::deque<Called> calls_;
  std::uint64_t first_ = 0;  // the number of calls_.front()
  std::uint64_t next_ = 0;   // next() is asked for this one
  std::uint64_t seen_ = 0;   // all before this one are seen by the last that next() was asked for
  std::uint32_t told_ = 0;   // in those
  std::uint32_t job_ = 0;    // of the last that next() gave out
  // The first operation of that job, and the elements before it.
  std::uint64_t changed_at_ = 0;
  std::int64_t changed_begin_ = 0;
  bool settled_ = true;
};

}  // namespace thalweg::net
