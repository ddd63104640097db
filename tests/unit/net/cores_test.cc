#include "net/collective/cores.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace thalweg {
namespace {

cpu_set_t set_of(const std::vector<unsigned>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned core : cores) CPU_SET(core, &set);
  return set;
}

std::vector<unsigned> cores_of(const cpu_set_t& set) {
  std::vector<unsigned> cores;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

using Cores = std::vector<unsigned>;

TEST(Cores, parse_core_list__as_the_kernel_writes_it) {
  const std::vector<std::pair<std::string, Cores>> good = {
      {"0", {0}}, {"0-3", {0, 1, 2, 3}}, {"1,4-5,1023", {1, 4, 5, 1023}}, {"", {}}};
  for (const auto& [text, cores] : good) {
    const std::optional<cpu_set_t> set = parse_core_list(text);
    ASSERT_TRUE(set.has_value()) << text;
    EXPECT_EQ(cores_of(*set), cores) << text;
  }
  for (const char* text :
       {"a", "1-", "-1", "3-1", "1024", "0-99999999999999999999", "1,,2", "1 2"}) {
    EXPECT_FALSE(parse_core_list(text).has_value()) << text;
  }
}

TEST(Cores, cores_near__has_the_core_itself) {
  const int core = sched_getcpu();
  ASSERT_GE(core, 0);
  const cpu_set_t near = cores_near(core);
  EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(core), &near));
  // A core that there is not: nothing is known, so nothing is ruled out.
  const cpu_set_t all = cores_near(1'000'000);
  EXPECT_EQ(CPU_COUNT(&all), CPU_SETSIZE);
}

// Only a thread that may run anywhere is moved, and afterwards it may again.
TEST(Cores, move_thread__leaves_a_restricted_one_alone) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const Cores cores = cores_of(before);
  if (cores.size() < 2 || !may_run_anywhere()) GTEST_SKIP() << "needs all cores, and two";
  const cpu_set_t first = set_of({cores[0]});
  const cpu_set_t second = set_of({cores[1]});
  ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
  EXPECT_FALSE(may_run_anywhere());
  EXPECT_FALSE(move_thread(second, set_of({})));
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_EQ(cores_of(after), cores_of(first));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_FALSE(move_thread(set_of({}), set_of({})));
  EXPECT_FALSE(move_thread(first, first));
  // Of two, one is taken.
  const cpu_set_t both = set_of({cores[0], cores[1]});
  // The system may move it on at once, but not every time.
  bool was_there = false;
  for (int i = 0; i < 100 && !was_there; ++i) {
    EXPECT_TRUE(move_thread(both, i % 2 == 0 ? first : second));
    EXPECT_TRUE(may_run_anywhere());
    was_there = sched_getcpu() == static_cast<int>(cores[i % 2 == 0 ? 1 : 0]);
  }
  EXPECT_TRUE(was_there);
}

}  // namespace
}  // namespace thalweg
