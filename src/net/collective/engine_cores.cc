// Where the engine's threads run.
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "net/collective/engine.h"
#include "net/system.h"

namespace thalweg {

void Engine::move_apart(Lock& lock) {
  if (!options_.moves_apart || options_.crowded) return;
  const Time now = monotonic_now();
  const int core = sched_getcpu();
  if (core < 0 || now < move_at_) return;
  turns_ = 0;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  bool together = false;
  for (Connection* connection : open_) {
    const std::int64_t other = connection->core;
    if (!connection->within_host || other < 0 || other >= CPU_SETSIZE) continue;
    CPU_SET(static_cast<std::size_t>(other), &taken);
    if (other != core) continue;
    together = together || connection->peer().value() < options_.rank;
    // It counts once: a peer that sends no more may be anywhere.
    connection->core = -1;
  }
  if (!together) return;
  lock.unlock();
  const bool moved = move_thread(cores_near(core), taken);
  lock.lock();
  const Time owed = std::max(move_at_, now - kBetweenMoves * (kMovesAtOnce - 1));
  move_at_ = moved ? owed + kBetweenMoves : now + kBetweenTries;
  core_is_shared_ = core_is_shared_ && !moved;
}

}  // namespace thalweg
