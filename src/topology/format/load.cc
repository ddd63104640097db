#include "topology/format/load.h"

#include <fmt/core.h>

namespace thalweg::topology {

Result<Topology> topology_from_file_text(std::string_view text, std::string_view source) {
  if (source.ends_with(".yaml") || source.ends_with(".yml")) {
    return topology_from_yaml(text, source);
  }
  if (source.ends_with(".xml")) return topology_from_nccl_xml(text, source);
  if (source.ends_with(".topo")) return topology_from_htsim(text, source);
  if (source.ends_with(".simai") || source.ends_with(".txt")) {
    return topology_from_simai(text, source);
  }
  return Error(
      fmt::format("{}: cannot tell the format of a topology from this name: end it in "
                  ".yaml or .yml (ours), .xml (NCCL), .topo (htsim), .simai or .txt "
                  "(SimAI)",
                  source));
}

}  // namespace thalweg::topology
