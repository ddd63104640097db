// What a user may ask of the testbeds that are up (docs/testbed.md). Every function but
// take_down_all_testbeds() and list_testbeds() fails if the testbed of that name is not up.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

// Takes down every testbed of this user. The error names all that could not be taken down.
[[nodiscard]] Status take_down_all_testbeds();

// The testbeds of this user, up or left over by a crash: an array of objects with the name, the
// state ("up", "silent" or "dead"), the number of hosts and the process. And the same as a table.
[[nodiscard]] nlohmann::json list_testbeds();
[[nodiscard]] std::string testbeds_text(const nlohmann::json& testbeds);

// What the links of a testbed carry, queue and drop. And the same as tables.
[[nodiscard]] Result<nlohmann::json> testbed_stats(const std::string& name);
[[nodiscard]] std::string testbed_stats_text(const nlohmann::json& stats);

// Changes a link, "A-B" or "all", as the words in `changes` say (link_change.h). Devices of hosts
// whose links get another rate send at it from then on. Moves the calling thread into a host's
// namespaces if there are such devices.
[[nodiscard]] Status set_testbed_link(const std::string& name, const std::string& link,
                                      const std::vector<std::string>& changes);

struct TestbedCapture {
  std::string place;         // a host, or a link "A-B"
  std::string file;          // to write, in pcap's format
  double seconds = 0;        // how long; 0: until SIGINT or SIGTERM
  std::uint64_t frames = 0;  // at most; 0: any number
};
// Captures frames, until one of the limits or a signal ends it, and returns how many. Calls
// `started` when the capture has begun. SIGINT and SIGTERM stay blocked in this process.
[[nodiscard]] Result<std::uint64_t> capture_testbed(const std::string& name,
                                                    const TestbedCapture& capture,
                                                    const std::function<void()>& started);

struct TestbedStalls {
  std::string every;   // mean time between two stalls, as "500ms"
  std::string length;  // of each, as "20ms"
  std::uint64_t seed = 1;
  bool off = false;  // ends the stalls; requires that the times are empty
};
// Makes hosts stall at random moments (stalls.h), or ends that.
[[nodiscard]] Status stall_testbed(const std::string& name, const TestbedStalls& stalls);

// `action`: "restart" (of a switch, which loses all that waits in it), "pause" or "resume" (of a
// host). `node`: its name.
[[nodiscard]] Status tell_testbed_node(const std::string& name, const std::string& action,
                                       const std::string& node);

}  // namespace thalweg::lab
