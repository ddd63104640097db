// AtpExponents: which exponent a worker gives to a block of floats, without asking the others
// first.
//
// All contributions to a sequence must have the same exponent (tensor/fixed_point.h), so each
// worker must choose the same by itself. It may use only what all workers know at that point of the
// sequence: the sums before it. Every gradient carries the exponent that its own elements need, and
// the sum carries the largest, so every worker learns the same exponents from the sums.
//
// - The block i of a tensor, one window or more after the first: packet i - window has carried the
//   exponent that it needs, and nobody sends block i before that packet's sum is there. (AtpWorker
//   does this; no prediction is needed.)
// - The blocks before: this class predicts them from an earlier call of the same kind, some bits
//   above what the same block needed there. Which call that is depends on the order of calls only.
//   If its sums are not all there, the block waits.
// - The sum of a block shows to every worker alike whether the exponent fitted: not if some element
//   needed more, and not if all needed so much less that bits are lost. Such a block is repeated
//   under another number (wire/atp_packet.h), with the exponent that the sum told.
//
// Kinds are numbers that the driver makes of size, type and operation. A copy is a snapshot.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/atp/options.h"
#include "tensor/fixed_point.h"

namespace thalweg::proto {

// How the exponents of a tensor are chosen. The default: the driver knows them, or has none.
struct AtpScaling {
  std::uint64_t kind = 0;  // of the call; 0: the worker does not choose exponents
  // How many bits above the need of the last call a prediction is; 0 or more.
  std::int8_t headroom = 0;
  // How many bits an exponent may be above what the block needs; at least `headroom`.
  std::int8_t slack = 0;
};
// The scaling of calls of a type that has fixed point. Narrow types lose nothing by more bits.
[[nodiscard]] AtpScaling atp_scaling(DType type, std::int64_t elements, std::uint8_t operation);

// What a sum shows about the exponent with which it was made.
enum class AtpFit : std::uint8_t {
  kFits,
  kNotFinite,  // some element is not finite: the whole block is NaN
  kRepeat,     // the block must be repeated, with the exponent that was needed
};
[[nodiscard]] AtpFit fit_of(std::int8_t exponent, std::int8_t needed, std::int8_t slack);

class AtpExponents {
 public:
  // Names a call that was started.
  struct Call {
    std::uint64_t kind = 0;
    std::uint64_t number = 0;
    bool operator==(const Call&) const = default;
  };

  explicit AtpExponents(const AtpPredictionOptions& options) : options_(options) {}

  // A call starts: its first block has the sequence `first`, and its first `blocks` are predicted.
  Call start(const AtpScaling& scaling, std::uint64_t first, std::uint64_t blocks);
  // The exponent of a block; none: the sum that it depends on is not there yet. Requires
  // index < blocks, and a call some of whose blocks are not learned.
  [[nodiscard]] std::optional<std::int8_t> predict(const Call& call, std::uint64_t index) const;
  // What a block needed. Call it once per block, when its sum is final.
  void learn(const Call& call, std::uint64_t index, std::int8_t needed);

  // Appends what decides later predictions.
  void encode_state(std::string& out) const;

  // Predicted for blocks of which nothing is known.
  static constexpr std::int8_t kFirstGuess = 0;

 private:
  static constexpr std::int8_t kUnknown = -127;  // not a value of tensor::needed_exponent()

  struct Record {
    std::uint64_t first = 0;   // sequence
    std::uint64_t source = 0;  // the number of the call that it learns from; its own: from none
    std::uint64_t left = 0;    // blocks that are not learned
    // For each block: what it needed last, which a block of zeros leaves as it was. kNoExponent:
    // all were zero so far.
    std::vector<std::int8_t> needed = {};
  };
  struct Kind {
    std::int8_t headroom = 0;
    std::uint64_t first_number = 0;  // of records.front()
    std::uint64_t open = 0;          // records with blocks that are not learned
    std::deque<Record> records = {};
    [[nodiscard]] Record& record(std::uint64_t number) { return records[number - first_number]; }
    [[nodiscard]] const Record& record(std::uint64_t number) const {
      return records[number - first_number];
    }
    [[nodiscard]] std::uint64_t next_number() const { return first_number + records.size(); }
  };

  [[nodiscard]] Kind& kind(std::uint64_t number) { return kinds_[number - first_kind_]; }
  [[nodiscard]] const Kind& kind(std::uint64_t number) const {
    return kinds_[number - first_kind_];
  }
  // The number of the kind; a new one if it is not known.
  std::uint64_t find(const AtpScaling& scaling);
  [[nodiscard]] std::uint64_t source_of(const Kind& kind, std::uint64_t first) const;
  // Drops the records that no call learns from any more.
  void forget(Kind& kind) const;
  // What is known of a block in the call that `record` learns from.
  [[nodiscard]] std::int8_t known(const Kind& kind, std::uint64_t number,
                                  std::uint64_t index) const;

  AtpPredictionOptions options_;
  std::map<std::uint64_t, std::uint64_t> numbers_;  // of the kinds that are known
  std::deque<Kind> kinds_;
  std::uint64_t first_kind_ = 0;  // the number of kinds_.front()
};

}  // namespace thalweg::proto
