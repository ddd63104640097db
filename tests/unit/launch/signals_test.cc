// Signals that end a program, while it starts and while it runs.
#include "launch/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace thalweg::launch {
namespace {

TEST(EndSignalsDeathTest, a_program_that_starts_is_ended_at_once) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          const EndSignals ends;
          kill(getpid(), signal);
          sleep(20);  // what the start waits for
          std::_Exit(0);
        },
        testing::KilledBySignal(signal), "");
  }
}

TEST(EndSignalsDeathTest, one_that_has_started_ends_by_itself) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        EndSignals ends;
        ends.started();
        kill(getpid(), SIGTERM);
        ends.wait();
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST(EndSignals, end__without_a_signal) {
  EndSignals ends;
  ends.started();
}

}  // namespace
}  // namespace thalweg::launch
