// The types that an ATP worker and its driver exchange, none of which holds payload, and
// AtpTensors, which maps a worker's tensors to one run of sequence numbers.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/atp/exponents.h"
#include "proto/fifo.h"
#include "wire/atp_packet.h"

namespace thalweg::proto {

// Names a tensor of one worker. A worker never uses a handle twice.
enum class AtpTensorHandle : std::uint64_t {};

// All workers of a job start the same tensors in the same order.
struct AtpTensorSpec {
  std::int64_t elements = 0;  // above 0
  // Counts from the start. Above 0; when it has passed, all tensors of the worker fail.
  Duration deadline = Duration::milliseconds(30'000);
  std::uint64_t cookie = 0;  // returned in blocks and outcomes; for the driver's own use
  // With a kind: the worker chooses the exponents of the blocks.
  AtpScaling scaling = {};
};

// Fails if a field of the spec is out of range, or if `most` tensors are in flight already.
Status check_tensor(const AtpTensorSpec& spec, std::size_t in_flight, std::uint32_t most);

// The workers that an abort names, as text for an error.
std::string missing_workers(const wire::AtpHeader& abort);

// The part of a tensor that one packet carries.
struct AtpBlock {
  AtpTensorHandle handle = {};
  std::uint64_t cookie = 0;
  std::int64_t first_element = 0;
  std::uint16_t elements = 0;
  std::uint64_t index = 0;  // of the block in its tensor
  AtpScaling scaling = {};  // of its tensor
  AtpExponents::Call call = {};
  // Whether the worker chooses its exponent.
  [[nodiscard]] bool scaled() const { return scaling.kind != 0; }
};

// A packet to be sent now. The driver fills in the elements, the same ones every time this sequence
// is sent, and sends it to `server` through the switches. If the worker has chosen the exponent
// (block.scaled()), the driver also fills in the exponents that this block and `ahead` need;
// otherwise, the exponent.
struct AtpTransmit {
  wire::AtpHeader header;
  std::uint32_t server = 0;
  AtpBlock block;
  AtpBlock ahead;      // the block of the tensor one window later; 0 elements: there is none
  bool again = false;  // it was sent before, whether or not the resend flag says so
  // Its sum came, but changed on the way: send it straight to the server, not through the switches.
  bool past_switches = false;
  // Its server is the worker's own: give it to the server in the same process.
  bool own = false;
};

// What the driver does with the elements of a packet that arrived.
struct AtpPlacement {
  // kPlace: copy the elements to `block` before the next call to the worker. On all others: drop
  // them; all but kFailed are counted.
  enum class Verdict : std::uint8_t {
    kPlace,
    kDuplicate,    // its sum has been placed already
    kOutOfWindow,  // its sequence is not in flight: acknowledged long ago, or never sent
    kMismatch,     // it has another job, kind, block size or exponent
    kRepeat,       // its exponent did not fit: the block will be sent again, with another
    kFailed,       // the worker has failed
  };
  Verdict verdict = Verdict::kMismatch;
  AtpBlock block;
  std::int8_t exponent = 0;  // of the elements, if the worker chose it; may be kNotFinite
};

// How a tensor ended. Each tensor that was started ends once.
struct AtpOutcome {
  AtpTensorHandle handle = {};
  std::uint64_t cookie = 0;
  std::string error;  // empty on success; otherwise names the job, the worker and the cause
  ErrorCode code = ErrorCode::kInternal;  // of the error
  std::optional<int> rank;                // that the error blames
  bool saturated = false;  // some sum reached the end of its range: do not use the tensor
  std::uint64_t blocks = 0;
  std::uint64_t retransmissions = 0;
  Time started;
  Time ended;

  [[nodiscard]] bool ok() const { return error.empty(); }
  // Requires !ok().
  [[nodiscard]] Error failure() const { return {code, error, rank}; }
};

// The tensors of one AtpWorker, which owns it and is its only caller.
//
// Invariants:
// 1. Tensors occupy consecutive sequences from 0 on, in the order of their start; each begins with
//    a block of its own.
// 2. A tensor ends with one outcome, when all its blocks are done or by fail_all().
class AtpTensors {
 public:
  // Requires a spec whose fields are in range and elements_per_block > 0. `call`: of a spec whose
  // exponents the worker chooses.
  AtpTensorHandle start(const AtpTensorSpec& spec, std::uint32_t elements_per_block, Time now,
                        const AtpExponents::Call& call);
  // One past the last sequence.
  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::size_t count() const { return tensors_.size(); }
  // The block of a sequence. Requires a sequence of a tensor that has not ended.
  [[nodiscard]] AtpBlock block(std::uint64_t sequence) const;
  // The block of the same tensor that is `distance` sequences later; 0 elements: there is none.
  [[nodiscard]] AtpBlock ahead(std::uint64_t sequence, std::uint64_t distance) const;
  // The sum of this sequence has been placed. Requires a sequence of a tensor that has not ended;
  // call it once per sequence.
  void done(std::uint64_t sequence, bool saturated, Time now);
  void retransmitted(std::uint64_t sequence);
  // The earliest deadline of all tensors.
  [[nodiscard]] std::optional<Time> next_deadline() const;
  void fail_all(const Error& error, Time now);
  bool poll_event(AtpOutcome& out);

 private:
  struct Tensor {
    AtpOutcome outcome;
    std::uint64_t first = 0;  // sequence
    std::uint64_t left = 0;   // blocks that are not done
    std::int64_t elements = 0;
    std::uint32_t per_block = 0;
    AtpScaling scaling;
    AtpExponents::Call call;
    Time deadline;
  };
  [[nodiscard]] static AtpBlock block_of(const Tensor& tensor, std::uint64_t index);
  [[nodiscard]] std::size_t find(std::uint64_t sequence) const;
  void end_tensor(Tensor& tensor, Time now);

  std::deque<Tensor> tensors_;
  std::uint64_t end_ = 0;
  std::uint64_t last_handle_ = 0;
  Fifo<AtpOutcome> events_;
};

}  // namespace thalweg::proto
