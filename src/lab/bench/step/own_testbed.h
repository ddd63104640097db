// The testbed of `thalweg bench step --testbed`: it is up as long as this object, and ends with
// this process, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include <thalweg/result.h>

#include "lab/testbed/place.h"
#include "lab/testbed/up_options.h"

namespace thalweg::lab::step {

class OwnTestbed {
 public:
  // Brings the testbed up in a process of its own. `options` need no name. To be called before
  // there are threads.
  [[nodiscard]] static Result<std::unique_ptr<OwnTestbed>> bring_up(TestbedUpOptions options);
  // Takes it down, with all programs on its hosts.
  ~OwnTestbed();
  OwnTestbed(const OwnTestbed&) = delete;
  OwnTestbed& operator=(const OwnTestbed&) = delete;

  [[nodiscard]] const std::string& name() const { return place_.name(); }
  // A path in the testbed's folder, which is removed with the testbed.
  [[nodiscard]] std::string file(const std::string& name) const {
    return place_.folder() + "/" + name;
  }

 private:
  OwnTestbed(TestbedPlace place, pid_t process) : place_(std::move(place)), process_(process) {}

  TestbedPlace place_;
  pid_t process_;
};

}  // namespace thalweg::lab::step
