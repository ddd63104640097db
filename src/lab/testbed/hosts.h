// The hosts of a testbed. Each is a network namespace with one device, whose other end the
// testbed's process holds.
//
// If the user is root, the namespaces have names, so that `ip netns` knows them. The process of any
// other user first enters a user namespace, if the machine allows that, and the hosts' namespaces
// have no names. A device (TAP) ends with the process that holds it, however that ends.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "lab/testbed/place.h"
#include "lab/testbed/switchboard.h"
#include "topology/topology.h"

namespace thalweg::lab {

// The device of every host that leads to the others.
inline constexpr const char* kTestbedDevice = "tw0";

// Enters a user namespace if that is needed to make networks. To be called before there are
// threads.
Status become_able_to_make_networks();

// Makes the hosts' namespaces, devices and addresses. The name of each namespace is remembered at
// the place before it is made. Also measures what the machine can carry, and sets
// settings.frames_per_second. Devices send at the rate of their links.
Result<std::vector<TestbedHost>> make_testbed_hosts(const TestbedPlace& place,
                                                    const topology::Topology& topology,
                                                    TestbedSettings& settings);

// Limits what the device in the calling thread's network namespace sends to a rate.
Status shape_testbed_device(Bandwidth rate, std::size_t mtu, std::uint32_t framing_bytes);

// Moves the calling thread into the namespaces of a host. `pid`: of the testbed's process. `enter`:
// the path of the host's network namespace, which is in the testbed's statistics.
Status enter_testbed_host(pid_t pid, const std::string& enter);

}  // namespace thalweg::lab
