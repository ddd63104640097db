// What calls that are the same have in common. A program repeats itself: with shared memory, making
// it anew would be half of the time of a small allreduce.
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

#include "net/collective/operation.h"
#include "net/collective/plans.h"

namespace thalweg {

// Which calls are the same.
struct CallKey {
  std::string_view name;  // stays
  std::int64_t elements = 0;
  DType type = DType::kFloat32;
  int root = 0;
  std::string_view scheme;
  ReduceOp op = ReduceOp::kSum;
  bool dlcp = false;  // goes over it
  double loss_bound = 0;
  auto operator<=>(const CallKey&) const = default;
};

// Made by the first of them.
struct KnownCall {
  std::string scheme;
  CallKey key;  // its scheme is that above
  std::string text;
  std::uint64_t signature = 0;
  std::shared_ptr<const PreparedPlan> plan;  // null: nothing is to be sent
};

// Operations of blocking calls that are over, for the next calls that are the same. From any
// thread; nobody waits for another: who finds a place in use goes without.
//
// Invariant: what lies here has no other owner.
class SpareOperations {
 public:
  // One of this call, ready to be started again; null: there is none.
  std::shared_ptr<Operation::State> take(const CallKey& key);
  // Requires that it is over, went over streams in one piece, and that nobody else has it.
  void put(std::shared_ptr<Operation::State> op);

 private:
  struct Place {
    std::atomic<bool> used = false;
    std::shared_ptr<Operation::State> op;  // of who has set `used`
  };
  static constexpr std::size_t kPlaces = 16;
  [[nodiscard]] Place& place_of(const CallKey& key);

  std::array<Place, kPlaces> places_;
};

}  // namespace thalweg
