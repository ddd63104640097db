// AtpReturns: finds switches again that a job had to do without, because they were not there or had
// no room when it was made, or would not have it again after they were restarted. When one of them
// has room, the job is made anew at all switches of the list, under another number.
//
// Used by the thread of AtpLeases.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "net/atp/switch_list.h"
#include "net/atp/switch_secrets.h"

namespace thalweg::net {

struct AtpLevels;

class AtpReturns {
 public:
  // Makes the job at more switches than `held`, and tells the ranks. None: it cannot be made now.
  using Make = std::function<std::optional<AtpLevels>(std::size_t held)>;

  // `all`: the list of the communicator. `missing`: those that the job does without.
  AtpReturns(std::vector<ListedSwitch> all, std::vector<ListedSwitch> missing,
             SwitchSecrets secrets, Make make);

  // The job does without this switch from now on.
  void miss(const std::string& address);
  // Asks the missing switches whether they have room, and makes the job anew if they do. `held`:
  // the switches that the job is at now.
  [[nodiscard]] std::optional<AtpLevels> look(std::size_t held);

 private:
  // Those of the missing switches that have room.
  [[nodiscard]] std::vector<std::string> with_room() const;

  std::vector<ListedSwitch> all_;
  std::vector<ListedSwitch> missing_;
  SwitchSecrets secrets_;
  Make make_;
  // Those that had room when the job could not be made, or not at more switches; another attempt is
  // due when one more has room, or at this time.
  std::vector<std::string> tried_;
  Time next_try_;
  Duration pause_;
};

}  // namespace thalweg::net
