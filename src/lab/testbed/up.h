// Brings a testbed up: makes the hosts, and becomes, or starts, the process that is the network.
#pragma once

#include <functional>
#include <string>

#include <thalweg/result.h>

#include "lab/testbed/up_options.h"

namespace thalweg::lab {

// Tells the user that the testbed is up: the text names its hosts. Returns false if nobody can read
// it; a testbed in the foreground ends then.
using AnnounceTestbed = std::function<bool(const std::string& text)>;

// Brings the testbed up, and calls `announce` when it is up. In the foreground, returns when the
// testbed was told to end and everything of it is removed. In the background, returns after the
// announcement: the testbed goes on in a process of its own, and SIGINT, SIGTERM and SIGHUP stay
// blocked in this one. If it fails, nothing is left behind. To be called before there are threads.
[[nodiscard]] Status bring_up_testbed(const TestbedUpOptions& options,
                                      const AnnounceTestbed& announce);

}  // namespace thalweg::lab
