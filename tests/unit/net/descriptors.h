// A process that has run out of descriptors.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "net/io/fd.h"

namespace thalweg::net {

// Calls `connect` when there is one descriptor left, which the client takes, so the server in the
// same process has none. Returns what `connect` returned. Unless `may_raise`, the process keeps the
// low limit.
inline std::string with_the_last_descriptor(bool may_raise,
                                            const std::function<std::string()>& connect) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit{64, may_raise ? before.rlim_max : 64};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Fd> all;
  do {
    all.emplace_back(dup(STDERR_FILENO));
  } while (all.back().valid());
  all.pop_back();
  all.pop_back();
  std::string said = connect();
  all.clear();
  if (may_raise) setrlimit(RLIMIT_NOFILE, &before);
  return said;
}

}  // namespace thalweg::net
