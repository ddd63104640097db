// What identical calls have in common: the call in words, its signature and its plan. Programs
// repeat their calls, and with shared memory making this anew would take half of the time of a
// small allreduce.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <thalweg/types.h>

#include "net/group/api/plans.h"
#include "net/group/operation/stream_operation.h"

namespace thalweg::net {

// Two calls are identical if their keys are equal.
struct CallKey {
  std::string_view name;  // must outlive the key
  std::int64_t elements = 0;
  DType type = DType::kFloat32;
  int root = 0;
  std::string_view scheme;
  ReduceOp op = ReduceOp::kSum;
  bool dlcp = false;  // over DLCP
  double loss_bound = 0;
  auto operator<=>(const CallKey&) const = default;
};

// Made by the first of several identical calls.
struct KnownCall {
  std::string scheme;
  CallKey key;  // its scheme points to `scheme` above
  std::string text;
  std::uint64_t signature = 0;
  std::shared_ptr<const PreparedPlan> plan;  // null: nothing has to be sent
};

// Keeps operations of blocking calls that are over, for the next identical calls. Any thread may
// use it, and none waits for another: if another thread uses the place of a call at this moment,
// take() returns null and put() keeps nothing.
//
// Invariant: an operation that is kept here has no other owner.
class SpareOperations {
 public:
  // Returns an operation of this call that can be started again; null: there is none.
  std::shared_ptr<StreamOperation> take(const CallKey& key);
  // Requires that the operation is over, was not divided, and has no other owner.
  void put(std::shared_ptr<StreamOperation> op);

 private:
  struct Place {
    std::atomic<bool> used = false;
    std::shared_ptr<StreamOperation> op;  // belongs to the thread that has set `used`
  };
  static constexpr std::size_t kPlaces = 16;
  [[nodiscard]] Place& place_of(const CallKey& key);

  std::array<Place, kPlaces> places_;
};

}  // namespace thalweg::net
