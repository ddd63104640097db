// Explores every behaviour of a small world (world.h) by exhaustive search.
//
// The steps are: a rank makes its next call; a stream delivers its next frame; a stalled stream
// whose writer has ended is read on; a timer fires; one rank, any of them, dies at any moment; and
// of the frames that the dead rank wrote and that were not read, any number of the last are lost,
// on each stream for itself. All orders of these steps are searched. Frames are fast against
// timers: time passes, to the next timer, only when no other step can be made. Timers of several
// ranks at one time fire in every order, before and after any frame of that time. So every rank
// makes its calls at time 0, in any order with all else; that ranks are late by seconds, and that
// frames take as long as timers, is left to the random schedules (schedule.h).
//
// Data frames are as long as they can be, streams have room for all of them, and ranks do not leave
// and do not ask the store. Schemes are those of real plans, with one element in each chunk.
//
// States are merged if their encodings are equal (World::encode_state and the time), compared by a
// hash of 128 bits. Nothing else is left out, and the search ends only when no state is left or
// `most_states` are found, which the report says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace thalweg::proto::collective_test {

struct Exploration {
  std::string scheme;
  int ranks = 3;
  std::int64_t elements = 1;
  std::vector<int> priorities = {1, 0};            // one call for each
  std::vector<std::size_t> in_flight = {2, 2, 2};  // [rank]: the most calls that it runs at once
  bool death = true;                               // a rank may die
  bool forgets_order = false;                      // WorldOptions
  bool forgets_stalls = false;                     // WorldOptions
  std::uint64_t most_states = 100'000'000;
};

struct ExplorationReport {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint64_t ends = 0;    // states in which nothing can happen any more
  std::uint64_t failed = 0;  // ends in which a call failed
  std::uint64_t timers = 0;  // timers that fired
  bool complete = false;     // every state was searched
  std::string violation;     // empty: every state is as it must be; else with the steps to it
};

// Checks in every state that no call ended twice, late or with a wrong sum, and that no data was
// taken for nonsense. Checks in every end that all calls of living ranks are over, that a failed
// call blames the rank that died and none failed if none died, and that nothing is kept.
ExplorationReport explore(const Exploration& exploration);

}  // namespace thalweg::proto::collective_test
