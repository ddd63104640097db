// htsim's topology text.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::check_topology(thalweg::topology_from_htsim(thalweg::as_text(data, size), "fuzz.topo"));
  return 0;
}
