// What the ranks of a communicator tell each other by way of the store, when their streams may not
// reach: what they call, that it failed, and who is still there.
//
// It has a connection of its own to the store, made when it is first needed. From any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/bootstrap/store.h"

namespace thalweg {

class Blackboard {
 public:
  // `group`: of the communicator; `rank`: ours in it.
  Blackboard(OpenStore open, std::string group, int rank)
      : open_(std::move(open)), group_(std::move(group)), rank_(rank) {}

  // Says what we call as an operation, unless another rank said so first. How the communicator
  // failed: if it did, or if what that rank calls is something else. To be asked again and again.
  std::optional<std::string> compare_calls(std::uint32_t number, std::uint64_t signature,
                                           const std::string& text);
  void announce_failure(const std::string& text);

  // Who calls this within `window` of each other, of `size` ranks, as all of them agree; it holds
  // our own rank. A rank that dies meanwhile is either in all lists or in none.
  Result<std::vector<int>> gather_survivors(int size, Duration window);

 private:
  Status connect(Time until);
  std::string key(const std::string& name) const { return "board/" + group_ + "/" + name; }
  // One round of gather_survivors(); none: whoever was to make the list did not.
  Result<std::optional<std::vector<int>>> try_gather(int attempt, int size, Duration window);

  OpenStore open_;
  std::string group_;
  int rank_;
  std::mutex mutex_;
  std::unique_ptr<Store> client_;  // with mutex_
};

}  // namespace thalweg
