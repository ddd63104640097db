// Ranks of one host that look for each other's bytes on one core, in turns, while they could run on
// two. Systems put processes there that wake each other, and separate them after milliseconds: of
// small operations, thousands. Launchers that bind ranks to cores prevent it; without one, the
// higher of two ranks moves.
//
// When: it has given its core away twice in a row, each time somebody else had it, and a lower rank
// of the host sent its last data from this core.
//
// Where to: a core of the same last cache, where none of the ranks it hears from sends. Only a
// thread that may run on all cores is moved, by an affinity that lasts no longer than the move: who
// has restricted it knows better.
#pragma once

#include <sched.h>

#include <optional>
#include <string_view>

#include "base/units.h"

namespace thalweg {

// Yields in a row that somebody else used.
inline constexpr int kTurnsOnACore = 2;

// Of an engine, on the long run at most one move in kBetweenMoves; but several at once, for a
// system may have moved the other rank to the same core just then. Where there was nowhere to go,
// the next try comes later.
inline constexpr Duration kBetweenMoves = Duration::milliseconds(5);
inline constexpr int kMovesAtOnce = 4;
inline constexpr Duration kBetweenTries = Duration::milliseconds(1000);

// As the kernel writes lists of processors: "0-3,8". None: it is no such list.
[[nodiscard]] std::optional<cpu_set_t> parse_core_list(std::string_view text);

// The calling thread may: on all that there are, as far as is known.
[[nodiscard]] bool may_run_anywhere();

// Those that share the last cache with the core; all, if the system does not say.
[[nodiscard]] cpu_set_t cores_near(int core);

// Reads what the system says of cores now, and not when a thread is to move: a rank that waits for
// it would fall asleep, and wake up on its new core.
void learn_cores();

// The calling thread, which may run on all cores before and after, to one of `near` that is not
// `taken`. False: it is restricted, or there is none.
bool move_thread(const cpu_set_t& near, const cpu_set_t& taken);

}  // namespace thalweg
