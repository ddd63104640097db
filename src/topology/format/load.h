// Reads topologies as users write them: a shorthand, our YAML file, or a file of a neighbouring
// tool. All functions take text, not paths; `source` is the name used in errors.
#pragma once

#include <string>
#include <string_view>

#include "topology/topology.h"

namespace thalweg::topology {

// "leaf-spine:racks=4,hosts=16,spines=2,host=10G,uplink=40G". docs/topology-format.md lists the
// kinds and their keys. An unknown kind or key is an error that lists what is allowed.
Result<Topology> topology_from_shorthand(std::string_view shorthand);
// Whether the text is the name of a kind, or starts with one and a colon.
bool is_topology_shorthand(std::string_view text);

// Our own format. Errors name the line.
Result<Topology> topology_from_yaml(std::string_view text, std::string_view source);
// The text parses back to an equal topology.
std::string topology_to_yaml(const Topology& topology);

// NCCL's topology dump of one server (NCCL_TOPO_DUMP_FILE): GPUs become hosts; CPUs, PCI bridges
// and NICs become switches.
Result<Topology> topology_from_nccl_xml(std::string_view text, std::string_view source);
// SimAI's topology text.
Result<Topology> topology_from_simai(std::string_view text, std::string_view source);
// htsim's fat-tree description (.topo).
Result<Topology> topology_from_htsim(std::string_view text, std::string_view source);

// Chooses the reader by the ending of `source`: .yaml, .yml, .xml (NCCL), .topo (htsim),
// .simai or .txt (SimAI).
Result<Topology> topology_from_file_text(std::string_view text, std::string_view source);

}  // namespace thalweg::topology
