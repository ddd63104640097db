#include "net/group/api/known_call.h"

#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::net {

SpareOperations::Place& SpareOperations::place_of(const CallKey& key) {
  const auto kind = static_cast<std::uint64_t>(key.type) << 8 | static_cast<std::uint64_t>(key.op);
  const std::uint64_t hash = mix_bits(kind << 8 | key.name.size());
  return places_[mix_bits(hash ^ static_cast<std::uint64_t>(key.elements)) % kPlaces];
}

std::shared_ptr<StreamOperation> SpareOperations::take(const CallKey& key) {
  Place& place = place_of(key);
  if (place.used.exchange(true, std::memory_order_acquire)) return nullptr;
  std::shared_ptr<StreamOperation> op;
  if (place.op && place.op->known->key == key) op = std::move(place.op);
  place.used.store(false, std::memory_order_release);
  if (op) op->renew();
  return op;
}

void SpareOperations::put(std::shared_ptr<StreamOperation> op) {
  CHECK(op->result && op->known && !op->division && op.use_count() == 1);
  Place& place = place_of(op->known->key);
  if (place.used.exchange(true, std::memory_order_acquire)) return;
  std::swap(place.op, op);
  place.used.store(false, std::memory_order_release);
}

}  // namespace thalweg::net
