// Ranks that look for each other's bytes on one core, in turns, while another is free. Systems put
// processes there that wake each other, and separate them after milliseconds: of small operations,
// thousands. Launchers that bind ranks to cores prevent it; without one, the higher rank moves.
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>

#include "net/collective/engine.h"

namespace thalweg {
namespace {

// Of asking where others are.
constexpr Duration kBetweenLooks = Duration::microseconds(200);
// A system that knows better, and puts them together again, is not fought.
constexpr Duration kBetweenMoves = Duration::milliseconds(5);

// Where the peer ran when it last wrote, or had to wait; below 0: it is not known.
int core_of(const Connection& connection) {
  if (connection.reads_shared()) return connection.shared()->in().core_of_writer();
  // Within a host the sender's core does the receiver's part of the work too.
  int core = -1;
  socklen_t size = sizeof(core);
  const bool known =
      getsockopt(connection.fd(), SOL_SOCKET, SO_INCOMING_CPU, &core, &size) == 0;
  return known ? core : -1;
}

// Not to `taken`. Afterwards the thread may run wherever it could before: it stays as long as the
// system sees no reason to move it. False: there is nowhere to go.
bool move_thread(const cpu_set_t& taken) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t free;
  CPU_ZERO(&free);
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed) && !CPU_ISSET(i, &taken)) CPU_SET(i, &free);
  }
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free) != 0) return false;
  sched_setaffinity(0, sizeof(allowed), &allowed);
  return true;
}

}  // namespace

void Engine::move_apart(bool others_ran, Time now) {
  if (options_.crowded) return;
  const int core = sched_getcpu();
  for (const Connection* connection : open_) {
    if (connection->writes_shared()) connection->shared()->out().say_core(core);
  }
  // What is known of others may be old; that somebody had this core just now is not.
  if (!others_ran || now < look_for_cores_at_) return;
  look_for_cores_at_ = now + kBetweenLooks;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  bool together = false;
  for (const Connection* connection : open_) {
    if (!connection->within_host || !connection->connected()) continue;
    const int other = core_of(*connection);
    if (other >= 0 && other < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(other), &taken);
    together = together || (other == core && connection->peer().value() < options_.rank);
  }
  if (!together || !move_thread(taken)) return;
  look_for_cores_at_ = now + kBetweenMoves;
  core_is_shared_ = false;
}

}  // namespace thalweg
