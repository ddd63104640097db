// What the ranks of a communicator tell each other through the store when they may have no streams
// to each other: what they call, that it failed, and who is still there.
//
// It has its own connection to the store, made when it is first needed. Any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/store/store.h"

namespace thalweg::net {

class GroupNotices {
 public:
  // `group`: the communicator's group; `rank`: this rank in it.
  GroupNotices(OpenStore open, std::string group, int rank)
      : open_(std::move(open)), group_(std::move(group)), rank_(rank) {}

  // Publishes what this rank calls as an operation, unless another rank has published a call with
  // this number or a later one. Returns how the communicator failed, if it did, or if that rank's
  // call differs. To be called again and again.
  std::optional<Error> compare_calls(std::uint32_t number, std::uint64_t signature,
                                     const std::string& text);
  void announce_failure(const Error& why);
  // How the communicator failed, if a rank has announced it.
  [[nodiscard]] std::optional<Error> failure();

  // Returns which of `size` ranks call this within `window` of each other. All of them get the same
  // list, and this rank is in it. A rank that dies meanwhile is either in all lists or in none.
  Result<std::vector<int>> gather_survivors(int size, Duration window);

 private:
  Status connect(Time until);
  // The same as failure(). Requires the mutex and a client.
  [[nodiscard]] std::optional<Error> announced();
  std::string key(const std::string& name) const { return "board/" + group_ + "/" + name; }
  // One attempt of gather_survivors(). None: the rank that was to make the list did not.
  Result<std::optional<std::vector<int>>> try_gather(int attempt, int size, Duration window);

  OpenStore open_;
  std::string group_;
  int rank_;
  std::mutex mutex_;
  std::unique_ptr<Store> client_;  // guarded by mutex_
};

}  // namespace thalweg::net
