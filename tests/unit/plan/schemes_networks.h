// Networks for the tests of the schemes: regular, uneven, nested, and with ranks that do not follow
// the regions.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topology/topology.h"

namespace thalweg::plan {

struct TestNetwork {
  std::string name;
  topology::Topology topology;
};

// Racks of the given sizes below one spine. Hosts are numbered rack by rack or, interleaved, one
// from each rack in turn, so that rank order is not region order. One rack is a single switch
// without a region.
TestNetwork rack_network(const std::vector<int>& sizes, bool interleaved = false);
// pods[p][r] hosts in rack r of pod p, and `beside` hosts in pod 0 that are in none of its racks.
TestNetwork pod_network(const std::vector<std::vector<int>>& pods, int beside = 0);
// All networks with `ranks` hosts: one switch; 2, 3 and 4 racks; uneven racks; pods.
std::vector<TestNetwork> networks_of(int ranks);

}  // namespace thalweg::plan
