// What goes by way of the store, because ranks that wait for each other need not be connected.
#include <optional>
#include <string>
#include <tuple>

#include "net/group/drive/engine.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr Duration kStoreEvery = Duration::milliseconds(1000);

}  // namespace

void Engine::consult(Lock& lock) {
  if (core_.broken() && !announced_) {
    announced_ = true;
    if (!options_.announce_failure) return;
    const Error why = *core_.broken();
    lock.unlock();
    options_.announce_failure(why);
    lock.lock();
    return;
  }
  const Time now = monotonic_now();
  if (running_.empty() || !options_.compare_calls || now < consult_at_) return;
  const Op& op = *running_.front();
  if (now < op.started + proto::CollectiveCall::kAskAfter) return;
  consult_at_ = now + kStoreEvery;
  // Copies: the operation may be over before the answer is there, and then only its caller may use
  // it.
  const auto call = std::tuple(op.number, op.signature, op.text);
  lock.unlock();
  const auto failure = std::apply(options_.compare_calls, call);
  lock.lock();
  if (!failure || core_.broken()) return;
  core_.fail(*failure);
  settle();
}

}  // namespace thalweg::net
