// What the plugin leaves in this process when all its objects are closed: nothing.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "nccl/fake_nccl.h"

namespace thalweg::nccl {

inline std::size_t descriptors() {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

// Threads of the plugin; sanitizers have some, too.
inline std::size_t workers() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "thalweg-nccl") ++count;
  }
  return count;
}

// Descriptors of this process are as many at the end as at the beginning, and no thread of the
// plugin runs. A switch in this process closes its ends of streams a moment later.
class NothingLeft {
 public:
  NothingLeft() = default;
  NothingLeft(const NothingLeft&) = delete;
  NothingLeft& operator=(const NothingLeft&) = delete;
  ~NothingLeft() {
    for (const Patience patience; descriptors() != before_ && !patience.over();) {
      std::this_thread::yield();
    }
    EXPECT_EQ(descriptors(), before_);
    EXPECT_EQ(workers(), 0U);
  }

 private:
  std::size_t before_ = descriptors();
};

}  // namespace thalweg::nccl
