// htsim's topology text.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::topology::check_topology(
      thalweg::topology::topology_from_htsim(thalweg::topology::as_text(data, size), "fuzz.topo"));
  return 0;
}
