// The hosts of a testbed: a network namespace each, with one device whose other end the testbed's
// process holds.
//
// As root the namespaces have names, so that `ip netns` knows them. Other users get a user
// namespace of their own first, where the machine allows that, and the hosts' have no names. A
// device (TAP) ends with the process that holds it, however that ends.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "cli/testbed/switchboard.h"
#include "cli/testbed_place.h"
#include "topology/topology.h"

namespace thalweg {

// Of every host, to the others.
inline constexpr const char* kTestbedDevice = "tw0";

// Enters a user namespace where that is needed to make networks. Before there are threads.
Status become_able_to_make_networks();

// Namespaces, devices, addresses; each is remembered at the place before it is made. Measures on
// the way what the machine can carry and sets settings.frames_per_second. Devices send at the rate
// of their links.
Result<std::vector<TestbedHost>> make_testbed_hosts(const TestbedPlace& place,
                                                    const Topology& topology,
                                                    TestbedSettings& settings);

// What the host's device sends, to a rate; of the calling thread's network namespace.
Status shape_testbed_device(Bandwidth rate, std::size_t mtu, std::uint32_t framing_bytes);

// Moves the calling thread into a host's namespaces, as the testbed's process `pid` has them and
// `enter` (of its statistics) names it.
Status enter_testbed_host(pid_t pid, const std::string& enter);

}  // namespace thalweg
