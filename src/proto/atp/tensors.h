// The words in which an ATP worker and its driver talk, and the tensors of a worker as one run of
// sequence numbers. Payload is never part of them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/fifo.h"
#include "wire/atp_packet.h"

namespace thalweg {

// A tensor of one worker; never used twice.
enum class AtpTensorHandle : std::uint64_t {};

// All workers of a job start the same tensors in the same order.
struct AtpTensorSpec {
  std::int64_t elements = 0;  // above 0
  // From the start. Above 0; when it has passed, the tensor and all after it fail.
  Duration deadline = Duration::milliseconds(30'000);
  std::uint64_t cookie = 0;  // comes back; for the driver's own use
};

// Fails on a spec that is not allowed, and when so many tensors are in flight already.
Status check_tensor(const AtpTensorSpec& spec, std::size_t in_flight, std::uint32_t most);

// The workers that an abort names, in words.
std::string missing_workers(const AtpHeader& abort);

// A part of a tensor: one packet's worth.
struct AtpBlock {
  AtpTensorHandle handle = {};
  std::uint64_t cookie = 0;
  std::int64_t first_element = 0;
  std::uint16_t elements = 0;
};

// A packet to be sent now. The driver puts in exponents and elements, the same whenever it is asked
// for this sequence, and sends it to `server`, by way of the switches.
struct AtpTransmit {
  AtpHeader header;
  std::uint32_t server = 0;
  AtpBlock block;
};

// What to do with the elements of a packet that arrived.
struct AtpPlacement {
  // kPlace: copy them to `block` before the next call to the worker. All others: drop; counted.
  enum class Verdict : std::uint8_t {
    kPlace,
    kDuplicate,    // its sum is there already
    kOutOfWindow,  // of no sequence in flight: acknowledged long ago, or never sent
    kMismatch,     // of another job or kind, or the block has another size
    kFailed,       // the worker has failed
  };
  Verdict verdict = Verdict::kMismatch;
  AtpBlock block;
};

// How a tensor ended. Each one that was started ends once.
struct AtpOutcome {
  AtpTensorHandle handle = {};
  std::uint64_t cookie = 0;
  std::string error;       // empty: success. Otherwise names job, worker and cause
  bool saturated = false;  // some sum has reached the end of its range: do not use it
  std::uint64_t blocks = 0;
  std::uint64_t retransmissions = 0;
  Time started;
  Time ended;

  [[nodiscard]] bool ok() const { return error.empty(); }
};

// Invariants: 1. Tensors lie side by side, in the order of their start, from sequence 0 on, each
// from a new block. 2. A tensor leaves with one outcome, when all its blocks are done or by
// fail_all().
class AtpTensors {
 public:
  // Requires a spec whose fields are in range and elements_per_block > 0.
  AtpTensorHandle start(const AtpTensorSpec& spec, std::uint32_t elements_per_block, Time now);
  // One past the last sequence.
  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::size_t count() const { return tensors_.size(); }
  // Requires a sequence of a tensor that has not ended.
  [[nodiscard]] AtpBlock block(std::uint64_t sequence) const;
  // The sum of this sequence is in its place. Requires what block() does, once a sequence.
  void done(std::uint64_t sequence, bool saturated, Time now);
  void retransmitted(std::uint64_t sequence);
  // The tensor whose deadline comes first.
  [[nodiscard]] std::optional<Time> next_deadline() const;
  void fail_all(std::string_view error, Time now);
  bool poll_event(AtpOutcome& out);

 private:
  struct Tensor {
    AtpOutcome outcome;
    std::uint64_t first = 0;
    std::uint64_t left = 0;
    std::int64_t elements = 0;
    std::uint32_t per_block = 0;
    Time deadline;
  };
  [[nodiscard]] std::size_t find(std::uint64_t sequence) const;
  void end_tensor(Tensor& tensor, std::string_view error, Time now);

  std::deque<Tensor> tensors_;
  std::uint64_t end_ = 0;
  std::uint64_t last_handle_ = 0;
  Fifo<AtpOutcome> events_;
};

}  // namespace thalweg
